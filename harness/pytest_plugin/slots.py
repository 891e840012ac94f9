"""Bounds the number of ranks of several pytest workers, each a process of its own."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path

WAIT_LIMIT_S = 600.0
_INTERVAL_S = 0.05


class SlotsError(RuntimeError):
    """There were not enough slots in time."""


class Slots:
    """Numbered slots, one a rank, that processes share: a slot is a lock on a file.

    The kernel frees the locks of a process that ends, however it ends.
    """

    def __init__(self, directory: Path) -> None:
        """Use the slots of a directory, which all workers of one run name."""
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def take(self, count: int, limit: int, wait_limit_s: float = WAIT_LIMIT_S) -> list[int]:
        """Take `count` of `limit` slots; returns file descriptors that hold them.

        One worker waits for slots at a time, so that no two wait for what the other has.

        Raises:
            SlotsError: others have held too many for `wait_limit_s`.
        """
        deadline_s = time.monotonic() + wait_limit_s
        held: list[int] = []
        door: list[int] = []
        waits: list[int] = []
        try:
            while not (door := door or self._lock("door")):
                self._pause(deadline_s, count, limit)
            free = 0
            while True:
                while len(held) < count and free < limit:
                    held += self._lock(str(free))
                    free += 1
                if len(held) == count:
                    return held
                free = 0
                waits = waits or self._lock("waits")
                self._pause(deadline_s, count, limit)
        except BaseException:
            self.give(held)
            raise
        finally:
            self.give([*door, *waits])

    def give(self, held: Sequence[int]) -> None:
        """Give slots back."""
        for fd in held:
            os.close(fd)

    def someone_waits(self) -> bool:
        """Whether some worker waits for slots that others hold."""
        # Shared: two that only look must not take each other for one that waits.
        fds = self._lock("waits", fcntl.LOCK_SH)
        self.give(fds)
        return not fds

    def _lock(self, name: str, kind: int = fcntl.LOCK_EX) -> list[int]:
        fd = os.open(self._directory / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return []
        return [fd]

    @staticmethod
    def _pause(deadline_s: float, count: int, limit: int) -> None:
        if time.monotonic() > deadline_s:
            raise SlotsError(
                f"a gang of {count} processes waited too long: other workers hold too many of the "
                f"{limit} that gang_max_processes allows"
            )
        time.sleep(_INTERVAL_S)
