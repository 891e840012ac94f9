"""Host memory: what may be handed to a device without a copy, and buffers made for that."""

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

# XLA's CPU client uses a host buffer in place, without a copy, from this alignment on.
ALIGNMENT = 64


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return an uninitialised C-contiguous array of `shape` whose first byte is 64-byte aligned."""
    nbytes = dtype.itemsize
    for extent in shape:
        nbytes *= extent
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)


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
