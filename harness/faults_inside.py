"""What happens inside a rank at a point of a schedule, and what ends it again."""

from __future__ import annotations

import builtins
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from harness import faults_beside, rank
from harness.faults_cut import cut

if TYPE_CHECKING:
    from harness.faults import Fault, Schedule, Starve

_FOR_EVER_S = 1e6
_T = TypeVar("_T")


class _Armed:
    """The faults of this rank that have not happened, and what ends those that last."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._lock = threading.Lock()
        self._left = list(faults)
        self._seen: dict[str, int | None] = {}
        self._endings: list[Callable[[], None]] = []

    def point(self, phase: str, batch: int | None) -> bool:
        __tracebackhide__ = True
        leave = False
        with self._lock:
            self._seen[phase] = batch
        while (fault := self._next(phase, batch)) is not None:
            at = {} if batch is None else {"batch": batch}
            own = {k: v for k, v in asdict(fault).items() if k not in ("rank", "batch", "phase")}
            rank.record("fault", fault=fault.kind, point=phase, **at, **own)
            leave |= self._happen(fault)
        return leave

    def _next(self, phase: str, batch: int | None) -> Fault | None:
        with self._lock:
            for fault in self._left:
                if fault.phase == phase and fault.batch in (None, batch):
                    self._left.remove(fault)
                    return fault
        return None

    def _happen(self, fault: Any) -> bool:
        __tracebackhide__ = True
        match fault.kind:
            case "raise":
                error: Exception = getattr(builtins, fault.error)(fault.message)
                error.add_note(f"injected fault: {fault}")
                raise error
            case "delay":
                time.sleep(_FOR_EVER_S if fault.for_s is None else fault.for_s)
            case "stop":
                _stop(fault.for_s)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(fault.status)
            case "leave":
                return True
            case "starve":
                self._last(_starve(fault), fault.for_s)
            case "cut":
                self._last(cut(), fault.for_s)
        return False

    def _last(self, end: Callable[[], None], for_s: float | None) -> None:
        """Have `end` called after a time, and at the end of the run at the latest, once."""
        stopping, done = threading.Event(), threading.Lock()

        def finish() -> None:
            if done.acquire(blocking=False):
                end()

        def wait() -> None:
            if not stopping.wait(for_s):
                finish()

        if for_s is None:
            self._endings.append(finish)
            return
        thread = threading.Thread(target=wait, name="fault-end", daemon=True)

        def end_now() -> None:
            stopping.set()
            thread.join()
            finish()

        self._endings.append(end_now)
        thread.start()

    def missed(self) -> list[str]:
        """The faults whose points were not come to, each with what was come to instead."""
        with self._lock:
            return [f"{fault} ({self._instead_of(fault)})" for fault in self._left]

    def _instead_of(self, fault: Fault) -> str:
        if fault.phase in self._seen:
            last = self._seen[fault.phase]
            return f"the last that it came to was {fault.phase}{'' if last is None else f' {last}'}"
        others = f": only to {', '.join(sorted(self._seen))}" if self._seen else ""
        return f"it came to no point {fault.phase!r}{others}"

    def end(self) -> None:
        for end in self._endings:
            end()


_armed: _Armed | None = None


def point(phase: str = "batch", batch: int | None = None) -> bool:
    """Let the faults of this point happen; nothing where none is scheduled.

    Args:
        phase: what the code under test is about to do, in its own words.
        batch: the batch it is about, from 0.

    Returns:
        Whether a fault wants the caller to leave its loop here.
    """
    __tracebackhide__ = True
    return _armed is not None and _armed.point(phase, batch)


def each(batches: Iterable[_T], phase: str = "batch") -> Iterator[_T]:
    """Iterate over `batches` with a point before each is asked for, numbered from 0.

    It ends early where a fault wants the loop to be left.
    """
    __tracebackhide__ = True
    iterator = iter(batches)
    number = 0
    while not point(phase, number):
        try:
            batch = next(iterator)
        except StopIteration:
            return
        yield batch
        number += 1


def injected(schedule: Schedule, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `fn` on this rank with the faults of a schedule. What lasts, ends with the call.

    What `fn` returns without having come to is recorded as missed.

    Raises:
        ValueError: a fault is for a rank that the gang does not have; `fn` was not called. So on
            all ranks.
    """
    __tracebackhide__ = True
    global _armed  # noqa: PLW0603 - a process is at most one rank
    this = rank.this()
    for fault in schedule.faults:
        if fault.rank >= this.processes:
            raise ValueError(
                f"no rank {fault.rank} in a gang of {this.processes}, so this fault can never "
                f"happen: {fault}. Give a rank from 0 to {this.processes - 1}"
            )
    armed = _Armed(schedule.of(this.rank))
    _armed = armed
    try:
        value = fn(*args, **kwargs)
        for missed in armed.missed():
            rank.record("missed", fault=missed)
        return value
    finally:
        _armed = None
        armed.end()


def _stop(for_s: float | None) -> None:
    """Stop this process; another, which is started for it, lets it go on after a time."""
    if for_s is None:
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    command = [sys.executable, "-I", "-S", faults_beside.__file__, str(os.getpid()), str(for_s)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
        pass  # its end is waited for: this process is stopped meanwhile


def _starve(fault: Starve) -> Callable[[], None]:
    """Bind this process and others that compute to one core; returns what ends that."""
    before = os.sched_getaffinity(0)
    core = {sorted(before)[rank.this().rank % len(before)]}
    _bind(core)  # what is started from here inherits it
    command = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    others = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL)
        for _ in range(max(1, round(1 / fault.share) - 1))
    ]

    def end() -> None:
        for process in others:
            process.kill()
        for process in others:
            process.wait()
        _bind(before)

    return end


def _bind(cores: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cores)
