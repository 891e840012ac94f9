"""What a thread has called that is not Python is told without running anything of it."""

from __future__ import annotations

import functools
import linecache
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

import pytest

from harness.called import called
from tests.harness.conftest import wait_until

LIMIT_S = 10.0


class Blocked:
    """A thread that waits in a function, whose frame is known, until it is let go."""

    def __init__(self) -> None:
        self.mine, self.peer = socket.socketpair()
        self.held = {"own": self.mine}
        self.lock = threading.Lock()
        self.lock.acquire()
        self.asked = 0

    @property
    def costly(self) -> NoReturn:
        """Never to be asked for by who only looks."""
        self.asked += 1
        raise AssertionError("a property was run")

    def __getattr__(self, name: str) -> Any:
        self.__dict__["asked"] += 1
        raise AttributeError(name)

    def start(self, wait: Callable[[Blocked], object]) -> FrameType:
        """Return the frame of a function that waits in a thread of its own."""
        self._thread = threading.Thread(target=wait, args=(self,), daemon=True)
        self._thread.start()
        assert self._thread.ident is not None
        assert wait_until(lambda: self._frame().f_code is wait.__code__, LIMIT_S)
        return self._frame()

    def _frame(self) -> FrameType:
        assert self._thread.ident is not None
        return sys._current_frames()[self._thread.ident]

    def let_go(self) -> None:
        """End the thread."""
        self.peer.send(b"go")
        self.lock.release()
        self._thread.join(LIMIT_S)
        self.mine.close()
        self.peer.close()


@pytest.fixture
def blocked() -> Iterator[Blocked]:
    """Give one whose thread ends with the test."""
    one = Blocked()
    yield one
    one.let_go()


def _recv(own: Blocked) -> object:
    return own.mine.recv(1)  # a comment: time.sleep(1)


def _recv_of_a_key(own: Blocked) -> object:
    sockets = own.held
    return sockets["own"].recv(1)


def _recv_in_lines(own: Blocked) -> object:
    number = 1
    return own.mine.recv(
        number,
    )


def _lock(own: Blocked) -> object:
    return own.lock.acquire()


def _partial(own: Blocked) -> object:
    acquire = functools.partial(own.lock.acquire, True)
    return acquire()


def _of_a_call(own: Blocked) -> object:
    return [own.mine].pop().recv(1)


@pytest.mark.parametrize(
    ("wait", "name"),
    [
        (_recv, "socket.socket.recv"),
        (_recv_of_a_key, "socket.recv"),
        (_recv_in_lines, "socket.recv"),
        (_lock, "_thread.lock.acquire"),
        (_partial, "lock.acquire"),
        (_of_a_call, "?.recv"),
    ],
)
def test_it_is_named(blocked: Blocked, wait: Callable[[Blocked], object], name: str) -> None:
    """By the object that was called, however the source comes to it."""
    assert called(blocked.start(wait)).endswith(name)


def _property(own: Blocked) -> object:
    try:
        return own.costly.recv(1)
    except AssertionError:
        return own.mine.recv(1)


def test_nothing_is_run_to_tell(blocked: Blocked) -> None:
    """Neither a property nor `__getattr__` is asked by looking at a frame."""
    frame = blocked.start(_property)
    assert wait_until(lambda: called(frame) != "", LIMIT_S)
    before = blocked.asked

    assert called(frame) == "socket.socket.recv"
    assert blocked.asked == before == 1


class _Hostile(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise SystemExit


class _Strange(metaclass=_Hostile):
    __slots__ = ("acquire",)
    asked = 0

    def __init__(self, own: Blocked) -> None:
        self.acquire = own.lock.acquire

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        type(self).asked += 1
        return int


def _strange(own: Blocked) -> object:
    strange = _Strange(own)
    return strange.acquire()


def test_no_class_is_asked_what_it_is(blocked: Blocked) -> None:
    """Neither `__class__` nor a metaclass runs by looking at a frame."""
    _Strange.asked = 0

    assert called(blocked.start(_strange)).endswith("._Strange.acquire")
    assert _Strange.asked == 0


class _Slots:
    __slots__ = ("step",)

    def __init__(self, step: object) -> None:
        self.step = step


def _compiled_in_a_slot(own: Blocked) -> object:
    kind = type("PjitFunction", (), {"__module__": "jaxlib._jax", "__call__": own.lock.acquire})
    slots: Any = _Slots(kind())
    return slots.step()


def test_a_compiled_step_in_a_slot_is_named(blocked: Blocked) -> None:
    """What `__slots__` hold is looked at, as what an instance's dictionary holds."""
    assert called(blocked.start(_compiled_in_a_slot)) == "jaxlib._jax.PjitFunction"


def test_a_sleep_is_told_from_what_is_only_called_so() -> None:
    """The function of that name in `time` is, and a lock behind another name is not."""
    ended = threading.Event()

    def rest() -> None:
        while not ended.is_set():
            time.sleep(0.2)

    thread = threading.Thread(target=rest, daemon=True)
    thread.start()
    assert thread.ident is not None
    ident = thread.ident

    assert wait_until(lambda: called(sys._current_frames()[ident]) == "time.sleep", LIMIT_S)
    ended.set()
    thread.join(LIMIT_S)


def test_code_without_source_is_not_told(blocked: Blocked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no source to read, there is nothing to say, and no error."""
    frame = blocked.start(_recv)
    monkeypatch.setattr(linecache, "getline", lambda *_: "")

    assert called(frame) == ""
