"""What runs inside each process of a gang: the functions that a rank's code calls, and the call."""

from __future__ import annotations

import pickle
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import cloudpickle

from harness.records import Recorder

LEFT_THREADS_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class This:
    """Which process of which gang this is."""

    rank: int
    processes: int
    devices_per_process: int


@dataclass(frozen=True, slots=True)
class _Membership:
    this: This
    recorder: Recorder


_membership: _Membership | None = None
_may_stay: set[str] = set()
_thread: int | None = None  # that runs the function


def this() -> This:
    """Say which process of the gang this is.

    Raises:
        RuntimeError: this process is not a rank of a gang.
    """
    return _member().this


def record(kind: str, /, **fields: Any) -> None:
    """Append one event to this rank's record at once; it survives whatever happens next.

    Fields are JSON values, numpy scalars or arrays. Safe to call from any thread.

    Raises:
        RuntimeError: this process is not a rank of a gang.
        TypeError: a field cannot be recorded.
    """
    _member().recorder.record(kind, fields)


def phase(name: str, batch: int | None = None) -> None:
    """Record that this rank now is in a phase of its work, until it says another.

    Raises:
        RuntimeError: this process is not a rank of a gang.
    """
    record("phase", phase=name, **({} if batch is None else {"batch": batch}))


def record_error(error: BaseException, **fields: Any) -> None:
    """Record an error that is caught here and ends what this rank does: it counts as a failure.

    Raises:
        RuntimeError: this process is not a rank of a gang.
        TypeError: a field cannot be recorded.
    """
    raised = _raised(error)
    record("error", **{key: raised[key] for key in ("type", "message", "traceback")}, **fields)


def let_threads_stay(*names: str) -> None:
    """Say that threads of these names may outlive the function: a library's, that do nothing more.

    In this run they are not counted as left behind, so the processes can be used again.

    Raises:
        RuntimeError: this process is not a rank of a gang.
    """
    _member()
    _may_stay.update(names)


def _member() -> _Membership:
    if _membership is None:
        raise RuntimeError("this process is not a rank: call it in a function given to Gang.run")
    return _membership


def join(member: This, recorder: Recorder) -> None:
    """Make this process a rank. For backends."""
    global _membership  # noqa: PLW0603 - a process is at most one rank
    _membership = _Membership(member, recorder)


def running() -> int | None:
    """Give the identifier of the thread that runs the function, or has run the last one."""
    return _thread


def execute(
    load: Callable[[], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]],
) -> bytes:
    """Run one call and pickle how it ended, as `decode` reads it. For backends.

    `load` gives function, arguments and keyword arguments; what it raises counts as raised.
    """
    global _thread  # noqa: PLW0603 - a process runs one function at a time
    _member().recorder.restart()
    _may_stay.clear()
    _thread = threading.get_ident()
    before = set(threading.enumerate())
    try:
        fn, args, kwargs = load()
        value = fn(*args, **kwargs)
        report = _returned(value)
        del fn, args, kwargs, value
    except BaseException as error:  # noqa: BLE001 - whatever ends the function is its outcome
        report = _raised(error)
    report["left_threads"] = _left_threads(before)
    return pickle.dumps(report)


def _returned(value: object) -> dict[str, Any]:
    try:
        return {"value": cloudpickle.dumps(value)}
    except Exception as error:  # noqa: BLE001 - pickling runs code of any class
        report = _raised(error)
        kind = type(value).__qualname__
        report["message"] = f"the return value ({kind}) cannot be pickled: {report['message']}"
        return report


def _raised(error: BaseException) -> dict[str, Any]:
    return {
        "type": qualified_name(type(error)),
        "mro": tuple(qualified_name(cls) for cls in type(error).__mro__),
        "message": _text(lambda: str(error)),
        "traceback": _text(lambda: "".join(traceback.format_exception(error))),
        "notes": _notes(error),
        "t_s": time.monotonic(),
    }


def qualified_name(cls: type) -> str:
    """Name a class as `Raised.type` does: without the module for builtins."""
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _notes(error: BaseException) -> tuple[str, ...]:
    # Meant to be a list of strings, but anybody may set it to anything.
    notes = getattr(error, "__notes__", ())
    each = notes if isinstance(notes, list | tuple) else [notes]
    return tuple(_text(partial(str, note)) for note in each)


def _text(make: Callable[[], str]) -> str:
    try:
        # A subclass of str might not travel: join makes it a plain one.
        return "".join([make()])
    except BaseException as error:  # noqa: BLE001 - an exception may fail to describe itself
        return f"<no text: {type(error).__name__}>"


def _left_threads(before: set[threading.Thread]) -> tuple[str, ...]:
    deadline_s = time.monotonic() + LEFT_THREADS_GRACE_S
    while True:
        new = [thread for thread in threading.enumerate() if thread not in before]
        left = [thread for thread in new if thread.name not in _may_stay]
        if not left or time.monotonic() > deadline_s:
            return tuple(thread.name for thread in left)
        left[0].join(0.01)
