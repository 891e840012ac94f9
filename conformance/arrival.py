"""What each value must arrive as: its dtype, its padding, and what cannot arrive. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import ml_dtypes  # noqa: F401  numpy learns bfloat16 and its kin from it
import numpy as np
from numpy.typing import NDArray

from conformance.model import Column
from conformance.rows import Array, cells


def padding_of(column: str, paddings: object) -> Any:
    """The padding of a column, from one value or a mapping; None where a mapping lacks it."""
    return paddings.get(column) if isinstance(paddings, Mapping) else paddings


def delivered_dtype(column: Column, dtypes: Any) -> np.dtype[Any]:
    """The dtype that a column must arrive in: what was asked for, or the source's, as in JAX."""
    asked = dtypes.get(column.name) if isinstance(dtypes, Mapping) else dtypes
    return _narrowed(np.dtype(column.dtype if asked is None else asked))


@cache
def _narrowed(own: np.dtype[Any]) -> np.dtype[Any]:
    """What JAX makes of a dtype. Asked for each batch of each column: a dtype's name is slow."""
    narrow = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
    return np.dtype(narrow.get(own.name, own.name))


def holds(dtype: np.dtype[Any], value: Any) -> bool:
    """Whether a padding of this value can be in a column of this dtype; None is no padding."""
    if value is None:
        return True
    if dtype.kind == "b":
        return value in (0, 1)
    if dtype.kind not in "iu":
        return not _overflows(np.asarray(value), dtype).any()
    info = np.iinfo(dtype)
    return float(value).is_integer() and info.min <= value <= info.max


def undeliverable(column: Column, process: int, rows: int, dtypes: object) -> NDArray[np.int64]:
    """Rows of a column that cannot arrive unchanged in the dtype they must arrive in."""
    source = cells(column, process, np.arange(0)).dtype
    if source.kind in "OUSMm":
        return np.arange(rows)
    target = delivered_dtype(column, dtypes)
    if source == target:
        return np.arange(0)
    own = _real(cells(column, process, np.arange(rows)), target)
    flat: NDArray[Any] = own.reshape(rows, math.prod(column.trailing))
    if target.kind in "iu" and own.dtype.kind in "iu":
        info = np.iinfo(target)
        bad = ((flat < info.min) | (flat > info.max)).any(axis=1)
    elif target.kind not in "iub":
        bad = _overflows(flat, target).any(axis=1)
    else:
        bad = np.zeros(rows, bool)
    return np.flatnonzero(bad)


def _real(array: Array, target: np.dtype[Any]) -> Array:
    """Complex numbers that must arrive as floats, as such: those of the cases have no more."""
    return array.real if array.dtype.kind == "c" and target.kind != "c" else array


def _overflows(array: Array, target: np.dtype[Any]) -> NDArray[np.bool_]:
    """Where a finite number would arrive as an infinity."""
    with np.errstate(over="ignore"):
        return np.asarray(np.isfinite(array) & ~np.isfinite(array.astype(target)))


def delivered(
    column: Column, process: int, rows: Sequence[int], padding: int, options: Mapping[str, Any]
) -> Array:
    """The array of a column that ``process`` must find: ``rows``, then so many of ``padding``.

    Shape ``(len(rows) + padding, *trailing)``, in the delivered dtype.
    """
    target = delivered_dtype(column, options.get("dtypes"))
    real = _real(cells(column, process, np.asarray(rows, np.int64)), target).astype(target)
    if not padding:
        return real
    fill = padding_of(column.name, options.get("paddings"))
    return np.concatenate([real, np.full((padding, *column.trailing), fill, target)])
