"""What Linux says of a process: how much it runs or would, whether it is stopped."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import struct
import time
from dataclasses import dataclass

_LIBC = ctypes.CDLL(None)
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_NANOSECOND_S = 1e-9
_ENDED = (b"Z", b"X")
_STOPPED = (b"T", b"t")
# From linux/pidfd.h: what the ioctl takes and gives (a mask, twelve other fields, the status).
_PIDFD_INFO = struct.Struct("<Q52xi")
_PIDFD_GET_INFO = 0xC0400000 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3


@dataclass(frozen=True)
class ProcessState:
    """One look at a process.

    Attributes:
        cpu_s: CPU seconds used by all its threads so far, ended ones too.
        demand_s: for each thread, by its id, seconds so far on a core or ready for one.
        waited_s: seconds so far that threads that live were ready for a core but had none.
        stopped: stopped by a signal.
        parent: its parent's process id.
    """

    cpu_s: float
    demand_s: dict[int, float]
    waited_s: float
    stopped: bool
    parent: int


class Process:
    """A process of this machine, held by a file descriptor: its id cannot come to mean another."""

    def __init__(self, pid: int) -> None:
        """Raises ProcessLookupError when there is no such process."""
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def fileno(self) -> int:
        """Give the descriptor, which can be read from once the process has ended."""
        return self._fd

    def look_at(self) -> ProcessState | None:
        """Look at the process; `None` when it has ended."""
        return None if self._has_ended() else look_at(self.pid)

    def is_ready(self) -> bool:
        """Whether the process neither has ended nor is stopped: a cheaper look."""
        # The state is that of the main thread: it ends before the process when that is killed.
        fields = _stat_fields(self.pid)
        return not self._has_ended() and bool(fields) and fields[0] not in _ENDED + _STOPPED

    def _has_ended(self) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(0))

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    def signal_main_thread(self, number: int) -> None:
        """Send a signal to the main thread, unless the process has ended.

        A stopped process that is continued handles it there before it runs on.
        """
        if not self._has_ended():
            _LIBC.tgkill(self.pid, self.pid, number)

    def wait_status(self, limit_s: float) -> int | None:
        """Say how an ended process has ended, as `os.waitpid` says it of a child.

        `None` where the kernel does not tell (before Linux 6.15), or not within the limit: its
        parent must have taken notice before.
        """
        deadline_s = time.monotonic() + limit_s
        while True:
            info = bytearray(_PIDFD_INFO.size)
            _PIDFD_INFO.pack_into(info, 0, _PIDFD_INFO_EXIT, 0)
            try:
                fcntl.ioctl(self._fd, _PIDFD_GET_INFO, info)
            except OSError:
                return None
            mask, status = _PIDFD_INFO.unpack(info)
            if mask & _PIDFD_INFO_EXIT:
                return int(status)
            if time.monotonic() > deadline_s:
                return None
            time.sleep(0.01)

    def close(self) -> None:
        """Let go of the process."""
        os.close(self._fd)


def look_at(pid: int) -> ProcessState | None:
    """Look at a process of this machine; `None` when it has ended."""
    fields = _stat_fields(pid)
    if not fields or fields[0] in _ENDED:
        return None
    turns = _turns_s(pid)
    return ProcessState(
        cpu_s=(int(fields[11]) + int(fields[12])) * _TICK_S,
        demand_s={thread: ran_s + waited_s for thread, (ran_s, waited_s) in turns.items()},
        waited_s=sum(waited_s for _, waited_s in turns.values()),
        stopped=fields[0] in _STOPPED,
        parent=int(fields[1]),
    )


def _stat_fields(pid: int) -> list[bytes]:
    """Read the third field (the state) and those after: the second may hold blanks and brackets."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _turns_s(pid: int) -> dict[int, tuple[float, float]]:
    """For each thread: seconds on a core, and seconds ready without one."""
    turns = {}
    for thread in _threads(pid):
        # The same two in nanoseconds, and the number of turns.
        fields = _read(f"/proc/{pid}/task/{thread}/schedstat").split()
        if fields:
            turns[int(thread)] = int(fields[0]) * _NANOSECOND_S, int(fields[1]) * _NANOSECOND_S
    return turns


def children(pid: int) -> list[int]:
    """Process ids of a process's children; none where the kernel does not tell."""
    return [
        int(child)
        for thread in _threads(pid)
        for child in _read(f"/proc/{pid}/task/{thread}/children").split()
    ]


def name_of(pid: int) -> str:
    """Give the first 15 bytes of a process's name; empty when it has ended."""
    return _read(f"/proc/{pid}/comm").decode(errors="replace").strip()


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:  # ended in the meantime
        return b""
