"""Host memory: what may be handed to a device without a copy, and buffers made for that."""

import contextlib
import ctypes
import math
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

# XLA's CPU client uses a host buffer in place, without a copy, from this alignment on.
ALIGNMENT = 64
_POOLED_FROM = 1 << 18  # bytes; below that fresh memory is cheap

Empty = Callable[[tuple[int, ...], np.dtype[Any]], np.ndarray]


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return an uninitialised C-contiguous array of `shape` whose first byte is 64-byte aligned."""
    nbytes = dtype.itemsize
    for extent in shape:
        nbytes *= extent
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)


class Pool:
    """Aligned buffers that are used again once nothing refers to them any more.

    An array on a device that uses a buffer in place keeps the numpy array alive that it was made
    of, and so the buffer comes back when the last such array is gone. Fresh memory would cost more
    than the copy into it: the system has to map and clear each page.

    What lies idle was in use before, at one time, and makes way for buffers of other sizes. So a
    pool does not raise the most memory that is needed, whatever uses it.

    Garbage may be collected, and so buffers come back, wherever a tuple is made. So what is known
    is looked at in copies, which a dict makes at once, other than a list of its items.

    Args:
        most_bytes: How much may lie idle.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._idle: dict[int, list[np.ndarray]] = {}  # by size; lists, whose methods are atomic

    @property
    def idle_bytes(self) -> int:
        """How much lies idle."""
        return sum(nbytes * len(idle) for nbytes, idle in self._idle.copy().items())

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an uninitialised array as `aligned_empty` does; callable from any thread."""
        nbytes = dtype.itemsize * math.prod(shape)
        if not _POOLED_FROM <= nbytes <= self._most_bytes:
            return aligned_empty(shape, dtype)
        idle = self._idle.setdefault(nbytes, [])
        try:
            raw = idle.pop()
        except IndexError:
            self._make_way(nbytes)
            raw = aligned_empty((nbytes,), np.dtype(np.uint8))
        # Views of views refer to this in the end: as it is no array, numpy cannot skip it.
        memory: Any = raw  # numpy's types do not say that an array is a buffer
        lease: Any = (ctypes.c_char * nbytes).from_buffer(memory)
        weakref.finalize(lease, self._take_back, raw).atexit = False
        array: np.ndarray = np.frombuffer(lease, dtype)
        return array.reshape(shape)

    def _make_way(self, nbytes: int) -> None:
        """Let go of idle buffers, where there are any, for a new one of a size that is lacking."""
        for size, idle in self._idle.copy().items():
            while idle and nbytes > 0:
                with contextlib.suppress(IndexError):  # another thread took it
                    idle.pop()
                    nbytes -= size
            if not idle:
                self._idle.pop(size, None)

    def _take_back(self, raw: np.ndarray) -> None:
        """Keep a buffer for later, or let it go; in whatever thread drops the last reference."""
        if self.idle_bytes + raw.nbytes <= self._most_bytes:
            self._idle.setdefault(raw.nbytes, []).append(raw)


def is_immutable(array: np.ndarray) -> bool:
    """Say whether nobody can write to the memory of `array` any more.

    True only for a read-only array whose chain of bases is read-only throughout and ends in
    `bytes` or in an immutable Arrow buffer, as Ray's batches over its object store do. An array
    that owns its memory does not count: its owner can make it writable again.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if isinstance(base, bytes):
        return True
    # Nothing can be over an Arrow buffer when pyarrow was never imported.
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is None:
        return False
    if isinstance(base, pyarrow.Buffer):
        return not base.is_mutable
    if isinstance(base, pyarrow.Array | pyarrow.ChunkedArray):
        return all(not buffer.is_mutable for buffer in arrow_buffers(base))
    return False


def arrow_buffers(column: Any) -> Iterable[Any]:
    """Yield the buffers of a `pyarrow.Array` or `pyarrow.ChunkedArray`."""
    chunks = column.chunks if hasattr(column, "chunks") else [column]
    for chunk in chunks:
        for buffer in chunk.buffers():
            if buffer is not None:
                yield buffer
