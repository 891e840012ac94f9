"""The simplest right iterator: blocking, one all-gather a batch."""

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils, multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Columns = dict[Any, np.ndarray[Any, Any]]
DONE, READY, FAILED = 0, 1, 2


def iter_jax_batches(
    source: Any,
    *,
    batch_size: int = 256,
    dtypes: Any = None,
    collate_fn: Callable[[Any], Any] | None = None,
    drop_last: bool = False,
    paddings: Any = None,
    prefetch_batches: int = 1,  # noqa: ARG001  nothing is read ahead
    local_shuffle_buffer_size: int | None = None,
    local_shuffle_seed: int | None = None,
    synchronize_batches: bool = False,
) -> Iterator[Any]:
    """Yield what Ray's ``DataIterator.iter_jax_batches`` documents, on every process alike.

    Raises ValueError where Ray does, and on every process when one of them fails.
    """
    devices = jax.local_device_count()
    if batch_size <= 0 or batch_size % devices:
        raise ValueError(f"batch_size={batch_size} is not a positive multiple of {devices} devices")
    mesh = Mesh(mesh_utils.create_device_mesh((jax.device_count(),)), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    shuffle = {
        "local_shuffle_buffer_size": local_shuffle_buffer_size,
        "local_shuffle_seed": local_shuffle_seed,
    }
    reader = exact(pieces(source, batch_size, shuffle), batch_size, drop_last)
    empty: Columns = {}  # the schema, as columns without rows
    while True:
        batch: Columns = {}
        error = None
        try:
            batch = next(reader, {})
            if batch and collate_fn:
                batch = columns(collate_fn(bare(batch)))
            batch = {k: cast(v, pick(dtypes, k), pick(paddings, k)) for k, v in batch.items()}
            empty = {k: v[:0] for k, v in batch.items()} or empty
        except Exception as caught:  # noqa: BLE001  whatever it is, the peers must learn of it
            error = caught
        state = FAILED if error else READY if batch else DONE
        schema = [(k, v.shape, v.dtype.name) for k, v in empty.items()]
        word = zlib.crc32(repr((schema, batch_size, drop_last, paddings, dtypes)).encode()) >> 1
        mine = np.array([state, rows(batch), word if empty else -1], np.int32)
        everyone = multihost_utils.process_allgather(mine) if synchronize_batches else mine
        states, sizes, words = (column.tolist() for column in everyone.reshape(-1, 3).T)
        if error:
            raise error
        if FAILED in states:
            raise ValueError(f"process {states.index(FAILED)} failed")
        if len(set(words) - {-1}) > 1:
            raise ValueError("options or schemas differ between processes")
        if READY not in states or (drop_last and DONE in states):
            return
        if paddings is not None and not drop_last and -1 not in words:
            batch = {
                k: pad(batch.get(k, v), batch_size, pick(paddings, k)) for k, v in empty.items()
            }
        elif len(set(sizes)) > 1 or sizes[0] % devices:
            raise ValueError(f"uneven numbers or sizes of batches: {sizes} rows")
        yield bare(
            {k: jax.make_array_from_process_local_data(sharding, v) for k, v in batch.items()}
        )


def pieces(source: Any, batch_size: int, shuffle: dict[str, Any]) -> Iterator[Columns]:
    """What the source emits; one array is a mapping with the only key None."""
    if hasattr(source, "iter_batches"):
        source = source.iter_batches(batch_size=batch_size, batch_format="numpy", **shuffle)
    return map(columns, source)


def columns(piece: Any) -> Columns:
    """A mapping, also of one array."""
    return {None: piece} if isinstance(piece, np.ndarray) else dict(piece)


def bare(batch: dict[Any, Any]) -> Any:
    """The inverse of ``columns``."""
    return batch.get(None, batch)


def rows(batch: Columns) -> int:
    """Rows of the first column."""
    return len(next(iter(batch.values()), ()))


def exact(source: Iterator[Columns], size: int, drop_last: bool) -> Iterator[Columns]:
    """The rows of ``source`` in mappings of ``size`` rows; the tail is shorter, or dropped."""
    held: Columns = {}
    for piece in source:
        if rows(held) and schema_of(held) != schema_of(piece):
            raise ValueError("the schema changed in the middle of a shard")
        held = {k: np.concatenate([held[k], v]) if rows(held) else v for k, v in piece.items()}
        while rows(held) >= size:
            yield {k: v[:size] for k, v in held.items()}
            held = {k: v[size:] for k, v in held.items()}
    if rows(held) and not drop_last:
        yield held


def schema_of(batch: Columns) -> list[Any]:
    """Names, dtypes and trailing shapes."""
    return [(k, v.dtype, v.shape[1:]) for k, v in batch.items()]


def pick(given: Any, column: Any) -> Any:
    """A column's own entry of a mapping, or the one value."""
    return given[column] if isinstance(given, dict) else given


def cast(array: Any, dtype: Any, padding: Any) -> Any:
    """The array in ``dtype``; raises where JAX has no such dtype or ``padding`` does not fit."""
    array = array if dtype is None else array.astype(dtype)
    if array.dtype.kind in "OSUMm":
        raise TypeError(f"JAX has no dtype for {array.dtype}")
    if padding is not None and array.dtype.kind in "iub" and array.dtype.type(padding) != padding:
        raise ValueError(f"padding {padding} does not fit {array.dtype}")
    return array


def pad(array: Any, size: int, value: Any) -> Any:
    """The array with rows of ``value`` after its own, ``size`` rows in all."""
    fill = np.full((size - len(array), *array.shape[1:]), value, array.dtype)
    return np.concatenate([array, fill])
