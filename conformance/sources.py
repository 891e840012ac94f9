"""A case's shards as something that a subject reads: in memory, or as Ray datasets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.model import ID, Case, Column, Shard, Split
from conformance.rows import Array, cells, piece

#: Columns of a dataset that is split: the id alone tells the row.
SPLIT_COLUMNS = (ID, Column("x", "float32", (3,)))


class InjectedError(RuntimeError):
    """The error that a case's source or collate function raises on purpose."""


class MemorySource:
    """An iterable of host batches; each ``iter()`` starts the shard anew."""

    def __init__(self, shard: Shard, process: int) -> None:
        self._shard = shard
        self._process = process

    def __iter__(self) -> Iterator[dict[str, Array] | Array]:
        shard = self._shard
        buffers: dict[str, Array] = {}
        for index in range(len(shard.sizes) + 1):
            if shard.fault and shard.fault.where == "source" and shard.fault.at == index:
                raise InjectedError(shard.fault.text)
            if index == len(shard.sizes):
                return
            if shard.delay_s:
                time.sleep(shard.delay_s)
            columns = piece(shard, self._process, index)
            if shard.reuse is not None:
                columns = {k: _into(buffers, k, v, shard.reuse) for k, v in columns.items()}
            yield next(iter(columns.values())) if shard.bare else columns


def _into(buffers: dict[str, Array], name: str, array: Array, offset: int) -> Array:
    """``array`` written into the buffer of ``name``, ``offset`` bytes past a 64-byte boundary."""
    if name not in buffers:
        raw = np.empty(array.nbytes + 64 + offset, np.uint8)
        start = -raw.ctypes.data % 64 + offset
        buffers[name] = raw[start : start + array.nbytes]
    view = buffers[name][: array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def ray_shards(case: Case, processes: int) -> list[Any]:
    """One Ray ``Dataset`` or ``DataIterator`` a process, made in the parent.

    They keep their order (``preserve_order``): without that Ray promises none, to no iterator.
    """
    import ray.data

    ray.data.DataContext.get_current().execution_options.preserve_order = True
    if case.split is not None:
        return _split(case.split, processes)
    return [_dataset(shard, case.owner(process)) for process, shard in enumerate(case.shards)]


def _table(columns: dict[str, Array]) -> Any:
    import pyarrow as pa
    from ray.data.extensions import ArrowTensorArray

    def arrow(array: Array) -> Any:
        if array.ndim > 1:
            return ArrowTensorArray.from_numpy(array)
        return pa.array(array.tolist() if array.dtype.kind in "OU" else array)

    return pa.table({name: arrow(array) for name, array in columns.items()})


def _dataset(shard: Shard, process: int) -> Any:
    import ray.data

    tables = [_table(piece(shard, process, index)) for index in range(len(shard.sizes))]
    if not tables:
        whole = Shard((1,), shard.columns)
        tables = [_table(piece(whole, process, 0)).slice(0, 0)]
    dataset = ray.data.from_arrow(tables)
    fault = shard.fault
    if fault is None or fault.where != "source":
        return dataset if not shard.delay_s else dataset.map_batches(_Slow(shard.delay_s))
    start = sum(shard.sizes[: fault.at])
    bad = cells(ID, process, np.arange(start, start + 1)).item()
    return dataset.map_batches(_Failing(bad, fault.text), batch_size=None)


class _Failing:
    """A map that raises at the block that holds the row with this id."""

    def __init__(self, bad_id: int, text: str) -> None:
        self._bad_id = bad_id
        self._text = text

    def __call__(self, batch: dict[str, Array]) -> dict[str, Array]:
        if (batch["id"] == self._bad_id).any():
            raise InjectedError(self._text)
        return batch


class _Slow:
    """A map that takes its time for every block."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def __call__(self, batch: dict[str, Array]) -> dict[str, Array]:
        time.sleep(self._delay_s)
        return batch


def split_rows(split: Split) -> int:
    """Rows of the dataset before it is split."""
    return sum(split.blocks)


def _split(split: Split, processes: int) -> list[Any]:
    import ray.data

    whole = Shard(split.blocks, SPLIT_COLUMNS)
    dataset = ray.data.from_arrow(
        [_table(piece(whole, 0, index)) for index in range(len(whole.sizes))]
    )
    match split.how:
        case "indices":
            return _split_at(dataset, split.at)
        case "split":
            return list(dataset.split(processes, equal=False))
        case "streaming":
            return list(dataset.streaming_split(processes, equal=False))
        case "streaming_equal":
            return list(dataset.streaming_split(processes, equal=True))
        case "filter":
            parts = _split_at(dataset, split.at)
            return [
                part.filter(_Keep(dropped))
                for part, dropped in zip(parts, split.dropped, strict=True)
            ]


def _split_at(dataset: Any, at: Sequence[int]) -> list[Any]:
    # One process reads the whole dataset: Ray refuses a split without indices.
    return list(dataset.split_at_indices(list(at))) if at else [dataset]


class _Keep:
    """A filter that drops the rows of these numbers in the whole dataset."""

    def __init__(self, dropped: tuple[int, ...]) -> None:
        self._ids = set(cells(ID, 0, np.asarray(dropped, np.int64)).tolist())

    def __call__(self, row: dict[str, Any]) -> bool:
        return int(row["id"]) not in self._ids
