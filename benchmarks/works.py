"""What is read: rows of several kinds, the same for all contestants."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Rows = dict[str, np.ndarray]


@dataclass(frozen=True)
class Work:
    """One kind of rows.

    Attributes:
        name: What `--work` selects.
        batch_size: Rows of a process in a batch.
        words: What the rows are, for readers of the table.
        make: (first row, rows) -> columns of shape (rows, *trailing). Values tell rows apart.
        dtype: What all columns are cast to, if they are.
    """

    name: str
    batch_size: int
    words: str
    make: Callable[[int, int], Rows]
    dtype: Any = None

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch of one process, as delivered."""
        columns = self.make(0, self.batch_size).values()
        if self.dtype is not None:
            return sum(int(c.size) for c in columns) * int(np.dtype(self.dtype).itemsize)
        # Without jax_enable_x64, JAX holds 64-bit values in 32 bits.
        return sum(int(c.size) * min(int(c.itemsize), 4) for c in columns)


def _numbers(first: int, rows: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return numbers that begin with the row's own, modulo 251, and go on from there."""
    size = int(np.prod(shape, dtype=np.int64))
    row = (np.arange(first, first + rows, dtype=np.int64) % 251)[:, None]
    column = np.arange(size, dtype=np.int64) % 5
    return (row + column).reshape(rows, *shape).astype(dtype)


def _wide(first: int, rows: int) -> Rows:
    return {f"c{i:03}": _numbers(first + i, rows, (), np.float32) for i in range(200)}


def _table(first: int, rows: int) -> Rows:
    return {f"f{i}": _numbers(first + i, rows, (128,), np.float64) for i in range(4)}


WORKS: Mapping[str, Work] = {
    work.name: work
    for work in (
        Work(
            "dense",
            256,
            "float32[1024], 256 rows (1 MiB)",
            lambda first, rows: {"x": _numbers(first, rows, (1024,), np.float32)},
        ),
        Work(
            "tokens",
            256,
            "int32[2048], 256 rows (2 MiB)",
            lambda first, rows: {"ids": _numbers(first, rows, (2048,), np.int32)},
        ),
        Work(
            "images",
            64,
            "uint8[224, 224, 3], 64 rows (9.2 MiB)",
            lambda first, rows: {"image": _numbers(first, rows, (224, 224, 3), np.uint8)},
        ),
        Work("wide", 256, "200 float32 scalars, 256 rows (200 KiB)", _wide),
        Work(
            "id",
            32,
            "one int64 id, 32 rows (128 B)",
            lambda first, rows: {"id": np.arange(first, first + rows, dtype=np.int64)},
        ),
        Work(
            "cast",
            256,
            "4 x float64[128] cast to bfloat16, 256 rows (256 KiB)",
            _table,
            ml_dtypes.bfloat16,
        ),
    )
}
