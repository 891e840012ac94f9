"""Keeps the tail of what ranks write to stdout and stderr; a flood is read, cut and forgotten."""

from __future__ import annotations

import os
import re
import selectors
import threading

TAIL_BYTES = 16 * 1024
_CHUNK_BYTES = 64 * 1024
# What a pipe can hold at most: one look at the end of a run need not read more.
_DRAIN_BYTES = 1024 * 1024
# Lines in which a runtime says why it ends the process.
_WHY = re.compile(r"what\(\):|Fatal Python error|Check failed|\bF\d{4,8} |Segmentation fault", re.I)


def last_words(output: str) -> list[str]:
    """Give the lines, two at most, in which a runtime said why it ended its process; often none."""
    return [line.strip() for line in output.splitlines() if _WHY.search(line)][-2:]


class Tails:
    """Reads pipes in a thread of its own, so that no writer waits for long."""

    def __init__(self, pipes: dict[int, int]) -> None:
        """Take over the reading ends of the ranks' pipes."""
        self._pipes = pipes
        self._tails = {rank: bytearray() for rank in pipes}
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        for rank, fd in pipes.items():
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, rank)
        self._wake_r, self._wake_w = os.pipe()
        self._selector.register(self._wake_r, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._loop, name="gang-output", daemon=True)
        self._thread.start()

    def clear(self) -> None:
        """Forget what was written so far: a new run begins."""
        with self._lock:
            for rank in self._pipes:
                self._drain(rank)
                self._tails[rank].clear()

    def text(self, rank: int) -> str:
        """Give the tail of what the rank has written since the last `clear`."""
        with self._lock:
            self._drain(rank)
            return self._tails[rank].decode(errors="replace")

    def close(self) -> None:
        """Stop reading. The tails stay."""
        if self._wake_w < 0:
            return
        os.close(self._wake_w)
        self._wake_w = -1
        self._thread.join()
        self._selector.close()
        os.close(self._wake_r)
        with self._lock:
            for rank, fd in self._pipes.items():
                self._drain(rank)
                os.close(fd)
            self._pipes = {}

    def _loop(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                with self._lock:
                    if not self._read(key.data):
                        self._selector.unregister(key.fd)

    def _drain(self, rank: int) -> None:
        if rank not in self._pipes:
            return
        for _ in range(_DRAIN_BYTES // _CHUNK_BYTES):
            if not self._read(rank, at_once=True):
                return

    def _read(self, rank: int, *, at_once: bool = False) -> bool:
        """Read one chunk; False at the end of the pipe, or, `at_once`, when there is none now."""
        try:
            chunk = os.read(self._pipes[rank], _CHUNK_BYTES)
        except BlockingIOError:
            return not at_once
        tail = self._tails[rank]
        tail += chunk
        del tail[:-TAIL_BYTES]
        return bool(chunk)
