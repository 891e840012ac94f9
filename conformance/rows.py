"""The values of a shard's rows: each tells its process, its row and its column.

Padding (``model.PADDING``) equals none of them, so a row that is lost, doubled, moved or taken from
another process shows in every column.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.model import ID, Column, Shard

Array = NDArray[np.generic]

#: Rows that one process may have before codes of two processes meet, by width of the dtype.
_ROWS_PER_PROCESS = {"int8": 30, "uint8": 60, "float16": 100, "bfloat16": 60}
_WIDE = 1000


def _code(dtype: str, process: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return process * _ROWS_PER_PROCESS.get(dtype, _WIDE) + rows + 1


def _coded(column: Column, process: int, rows: NDArray[np.int64]) -> Array:
    code = _code(column.dtype, process, rows)
    if column.dtype == "bool":
        return np.asarray((rows * 7 + process) % 3 == 0)
    if column.dtype not in _ROWS_PER_PROCESS:
        # A salt per name, so that two columns never hold the same numbers.
        code = code * 8 + sum(column.name.encode()) % 7
    cells: NDArray[Any] = np.arange(math.prod(column.trailing))
    cells = cells.reshape(column.trailing)
    if column.dtype in _ROWS_PER_PROCESS or column.dtype in ("int16", "uint16"):
        cells = cells * 0
    elif column.dtype.startswith(("float", "complex")):
        cells = cells * 0.25
    else:
        cells = cells * 40_000
    wide = code.reshape(code.shape + (1,) * len(column.trailing)) + cells
    return wide.astype(np.dtype(column.dtype))


def _objects(cells: list[object]) -> Array:
    out = np.empty(len(cells), object)
    for index, cell in enumerate(cells):
        out[index] = cell
    return out


def _extreme(column: Column, process: int, rows: NDArray[np.int64]) -> Array:
    """The ends of the dtype's range in turns; of a float, what is no number too."""
    dtype = np.dtype(column.dtype)
    if dtype.kind == "f":
        floats = np.finfo(dtype)
        values = [np.nan, floats.max, np.inf, floats.tiny, -np.inf, floats.min]
    else:
        integers = np.iinfo(dtype)
        values = [integers.max, integers.min, 0]
    return np.array(values, dtype)[(rows + process) % len(values)]


def _huge(_column: Column, process: int, rows: NDArray[np.int64]) -> Array:
    """Of either sign, far beyond int32; in binary, few digits before many zeros."""
    sign = np.where(rows % 2 == 0, 1, -1)
    return sign * _code("int64", process, rows) * 2**33


def _infinite(_column: Column, process: int, rows: NDArray[np.int64]) -> Array:
    values = [np.inf, 0.5, -np.inf, np.nan]
    return np.array(values)[(rows + process) % len(values)]


def _late(_column: Column, process: int, rows: NDArray[np.int64]) -> Array:
    code = _code("int64", process, rows)
    return np.where(rows >= 5, code + 2**31, code)


_MAKERS: dict[str, Callable[[Column, int, NDArray[np.int64]], Array]] = {
    "coded": _coded,
    # What the collate function "double" makes of the column id.
    "double_id": lambda _c, p, r: _coded(ID, p, r) * 2,
    # Just beyond int32, and far beyond it but exact in float32.
    "big": lambda _c, p, r: _code("int64", p, r) + 2**31,
    "huge": _huge,
    "big_from_row_5": _late,
    "extreme": _extreme,
    "infinite": _infinite,
    # In batches of four: the second is beyond 15.5, the largest of float8_e3m4.
    "from_12": lambda _c, _p, r: (r + 12).astype(np.uint8),
    "beyond_float32": lambda _c, p, r: _code("int64", p, r) * 1e300,
    "string": lambda _c, p, r: np.array([f"p{p}r{i}" for i in r.tolist()], "U12"),
    "object": lambda _c, p, r: _objects([{"p": p, "r": i} for i in r.tolist()]),
    "ragged": lambda _c, _p, r: _objects([np.arange(i % 3 + 1) for i in r.tolist()]),
    "date": lambda _c, p, r: np.datetime64("2026-01-01", "s") + _code("int64", p, r),
}


def cells(column: Column, process: int, rows: NDArray[np.int64]) -> Array:
    """The values of ``rows`` of ``process`` in ``column``: shape ``(len(rows), *trailing)``."""
    return _MAKERS[column.values](column, process, rows)


def piece(shard: Shard, process: int, index: int) -> dict[str, Array]:
    """Piece ``index`` of the shard, a mapping of column to array."""
    start = sum(shard.sizes[:index])
    rows = np.arange(start, start + shard.sizes[index])
    columns = shard.later if shard.later and index >= shard.later_from else shard.columns
    return {
        c.name: cells(c, process, rows[:-2] if c.name == shard.short else rows) for c in columns
    }
