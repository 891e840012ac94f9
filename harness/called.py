"""What a thread of this process has called that is not Python: another thread tells it when asked.

Stacks end with a line of Python. What waits there, a compiled step or a socket, only the object
that was called can tell: from its second call on, a jitted function of JAX has no frame of its own.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
import linecache
import os
import sys
import textwrap
import threading
from collections.abc import Callable
from types import BuiltinFunctionType, FrameType, MemberDescriptorType, ModuleType


class _UnknownError(Exception):
    """An expression whose value cannot be told without running code."""


def serve(requests: str, answers: str, thread: Callable[[], int | None]) -> None:
    """Answer in the background, as long as somebody holds `requests` open.

    Args:
        requests: a named pipe; each byte asks once.
        answers: the file to which a line is appended for each: the number of the innermost line,
            as stacks that are taken at another moment may be of another, and what it has `called`.
        thread: tells of which thread, by its identifier.
    """
    asked = os.open(requests, os.O_RDONLY | os.O_CLOEXEC)
    told = os.open(answers, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    current_frames = sys._current_frames  # the code under test may put another there

    def answer() -> None:
        while os.read(asked, 1):
            try:
                frame = current_frames().get(thread() or 0)
                line = f"{frame.f_lineno} {called(frame)}" if frame else ""
                del frame  # it holds what its variables hold
                os.write(told, f"{line}\n".encode())
            except Exception:  # noqa: BLE001 - the next one who asks waits for an answer too
                os.write(told, b"\n")

    threading.Thread(target=answer, name="gang-called", daemon=True).start()


def called(frame: FrameType) -> str:
    """Say what a frame that is not running itself has called, without running any code of it.

    Returns:
        The qualified name of a function, the class of another object, `?` and a name for a method
        of what cannot be told; empty if nothing can be told.
    """
    try:
        function = _function(frame)
        if isinstance(function, ast.Attribute):
            try:
                owner = _value(function.value, frame)
            except _UnknownError:
                return f"?.{function.attr}"
            found = _unwrapped(_attribute(owner, function.attr))
            if not issubclass(type(owner), ModuleType) and not _is_compiled(found):
                return f"{_name(type(owner))}.{function.attr}"
        else:
            found = _unwrapped(_value(function, frame))
        return _name(found if type(found) is BuiltinFunctionType else type(found))
    except Exception:  # noqa: BLE001 - it is about code of anybody, and a courtesy
        return ""


def _function(frame: FrameType) -> ast.expr:
    """Return what is called where a frame stands.

    Raises:
        _UnknownError: It is no call, or its source cannot be read.
    """
    code = frame.f_code
    position = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None))
    first, last, begin, end = position
    if first is None or last is None or begin is None or end is None:
        raise _UnknownError
    lines = [linecache.getline(code.co_filename, line).encode() for line in range(first, last + 1)]
    lines[-1] = lines[-1][:end]  # before the start is cut: they may be one
    lines[0] = lines[0][begin:]
    text = b"".join(lines).decode()
    call = ast.parse(f"({textwrap.dedent(text)})", mode="eval").body
    if not isinstance(call, ast.Call):
        raise _UnknownError
    return call.func


def _value(node: ast.expr, frame: FrameType) -> object:
    match node:
        case ast.Name(name):
            for names in (frame.f_locals, frame.f_globals, vars(builtins)):
                if name in names:
                    return names[name]
        case ast.Attribute(value, name):
            return _attribute(_value(value, frame), name)
        case ast.Subscript(value, ast.Constant(key)):
            owner = _value(value, frame)
            if type(owner) in (dict, list, tuple):
                return owner[key]  # type: ignore[index]
    raise _UnknownError


def _attribute(owner: object, name: str) -> object:
    found = inspect.getattr_static(owner, name)
    if type(found) is MemberDescriptorType:  # of `__slots__`
        return found.__get__(owner)
    # Not `isinstance`: it asks for `__class__`, which may be code of the object.
    if issubclass(type(found), property | functools.cached_property):
        raise _UnknownError
    return found


def _unwrapped(found: object) -> object:
    while type(found) in (functools.partial, staticmethod):
        found = found.func if type(found) is functools.partial else found.__func__  # type: ignore[attr-defined]
    return found


def _is_compiled(found: object) -> bool:
    return _name(type(found)).startswith("jaxlib")


def _name(found: type | BuiltinFunctionType) -> str:
    if type(found) is BuiltinFunctionType:
        names = (found.__module__, found.__qualname__)
    else:
        names = tuple(type.__dict__[n].__get__(found) for n in ("__module__", "__qualname__"))
    if not all(type(name) is str and name.isprintable() for name in names if name is not None):
        raise _UnknownError
    return ".".join(map(str, names))
