"""The same on grain: its dataset batches, pads and fetches ahead; the arrays are placed by hand."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import grain
import grain.experimental
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from examples.implementations.memory import in_batches


def iter_jax_batches(
    source: Any,
    *,
    batch_size: int = 256,
    prefetch_batches: int = 1,
    dtypes: Any = None,
    collate_fn: Callable[[Any], Any] | None = None,
    drop_last: bool = False,
    paddings: Any = None,
    synchronize_batches: bool = False,  # noqa: ARG001  grain leaves that to its user
) -> Iterator[Any]:
    """Yield global arrays of a grain dataset over the rows of ``source``."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    batch_fn = None
    if paddings is not None and not drop_last:
        pad = functools.partial(grain.experimental.batch_and_pad, batch_size=batch_size)
        batch_fn = functools.partial(pad_columns, pad, paddings)
    dataset = grain.MapDataset.source(rows_of(source))
    dataset = dataset.batch(batch_size, drop_remainder=drop_last, batch_fn=batch_fn)
    if collate_fn is not None:
        dataset = dataset.map(collate_fn)
    ahead = grain.ReadOptions(num_threads=1, prefetch_buffer_size=max(prefetch_batches, 1))

    def place(name: str, array: Any) -> Any:
        dtype = dtypes.get(name) if isinstance(dtypes, dict) else dtypes
        array = array if dtype is None else array.astype(dtype)
        return jax.make_array_from_process_local_data(sharding, array)

    for batch in dataset.to_iter_dataset(ahead):
        yield (
            place("", batch)
            if isinstance(batch, np.ndarray)
            else {name: place(name, column) for name, column in batch.items()}
        )


def rows_of(source: Any) -> list[Any]:
    """Every row: grain asks for a source that has a length and can be read at any place."""
    pieces = (
        source.iter_batches(batch_size=None, batch_format="numpy")
        if hasattr(source, "iter_batches")
        else in_batches(source, 1024, drop_last=False)
    )
    rows: list[Any] = []
    for piece in pieces:
        if isinstance(piece, np.ndarray):
            rows += list(piece)
        else:
            names = list(piece)
            rows += [
                dict(zip(names, row, strict=True)) for row in zip(*piece.values(), strict=True)
            ]
    return rows


def pad_columns(pad: Callable[..., Any], paddings: Any, rows: list[Any]) -> Any:
    """A batch of ``rows``, each column filled up with its own padding."""
    if not isinstance(paddings, dict):
        return pad(rows, pad_value=paddings)
    return {name: pad([row[name] for row in rows], pad_value=paddings[name]) for name in rows[0]}
