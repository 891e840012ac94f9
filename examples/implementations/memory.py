"""What Ray's `iter_batches` does for a dataset, for the suite's sources in memory."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np


def in_batches(source: Iterable[Any], batch_size: int, drop_last: bool) -> Iterator[Any]:
    """Pieces of any size, each one array or a mapping of them, in batches of ``batch_size`` rows.

    The tail is shorter, or left out. Raises ValueError for a size below 1, as Ray and grain do.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} must be 1 or more")
    held: dict[str, np.ndarray[Any, Any]] = {}
    for piece in source:
        columns = {"": piece} if isinstance(piece, np.ndarray) else dict(piece)
        held = {k: np.concatenate([held[k], v]) if held else v for k, v in columns.items()}
        while rows(held) >= batch_size:
            yield bare({k: v[:batch_size] for k, v in held.items()})
            held = {k: v[batch_size:] for k, v in held.items()}
    if rows(held) and not drop_last:
        yield bare(held)


def rows(columns: dict[str, np.ndarray[Any, Any]]) -> int:
    """Rows of the first column."""
    return len(next(iter(columns.values()), ()))


def bare(columns: dict[str, np.ndarray[Any, Any]]) -> Any:
    """One array, where the source emits one."""
    return columns.get("", columns)
