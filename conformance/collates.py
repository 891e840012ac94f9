"""Collate functions of cases, by name: a class for Ray, a plain callable in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from conformance.model import Case, Kind
from conformance.rows import Array, cells
from conformance.sources import InjectedError

Batch = dict[str, Array]


def _double(case: Case, process: int) -> Callable[[Batch], Any]:
    """Adds a column ``y``, twice the id."""
    del case, process
    return lambda batch: batch | {"y": batch["id"] * 2}


def _fail(case: Case, process: int) -> Callable[[Batch], Any]:
    """Raises at the batch that holds the first row of the piece of the shard's fault."""
    shard = case.shards[process]
    fault = shard.fault
    if fault is None or fault.where != "collate":
        return lambda batch: batch
    start = sum(shard.sizes[: fault.at])
    bad = next(iter(cells(shard.columns[0], process, np.arange(start, start + 1)).tolist()))

    def collate(batch: Batch) -> Batch:
        if (batch[shard.columns[0].name] == bad).any():
            raise InjectedError(fault.text)
        return batch

    return collate


def _bare(case: Case, process: int) -> Callable[[Batch], Any]:
    """One array instead of a mapping."""
    del case, process
    return lambda batch: batch["x"]


@dataclass
class Pair:
    """A tree of its own, as a model's input might be."""

    first: Any
    second: Any


class Record(NamedTuple):
    """A tuple with names."""

    x: Any
    id: Any


def _nested(case: Case, process: int) -> Callable[[Batch], Any]:
    """A mapping that holds a mapping and a tuple."""
    del case, process
    return lambda batch: {"a": {"x": batch["x"]}, "t": (batch["id"],)}


def _record(case: Case, process: int) -> Callable[[Batch], Any]:
    """A named tuple."""
    del case, process
    return lambda batch: Record(batch["x"], batch["id"])


def _pair(case: Case, process: int) -> Callable[[Batch], Any]:
    """A registered dataclass."""
    del case, process
    register()
    return lambda batch: Pair(batch["x"], {"id": batch["id"]})


def register() -> None:
    """Make ``Pair`` a tree for JAX, on a process where it is not yet one."""
    import jax

    if not getattr(Pair, "registered", False):
        jax.tree_util.register_dataclass(Pair, ["first", "second"], [])
        Pair.registered = True  # type: ignore[attr-defined]


#: Where a collate function puts a column that does not stay at the top.
PATHS: dict[str, dict[str, str]] = {
    "bare": {"x": ""},
    "nested": {"x": "['a']['x']", "id": "['t'][0]"},
    "record": {"x": ".x", "id": ".id"},
    "pair": {"x": ".first", "id": ".second['id']"},
}


def _bare_on_last(case: Case, process: int) -> Callable[[Batch], Any]:
    """One array instead of a mapping, on the last process alone."""
    if process == len(case.shards) - 1:
        return lambda batch: batch["x"]
    return lambda batch: {"x": batch["x"]}


_NAMED: dict[str, Callable[[Case, int], Callable[[Batch], Any]]] = {
    "double": _double,
    "bare": _bare,
    "nested": _nested,
    "record": _record,
    "pair": _pair,
    "fail": _fail,
    "bare_on_last": _bare_on_last,
}


def collate_of(case: Case, process: int, kind: Kind) -> Any:
    """The case's collate function for one process, in the form that its kind of source takes."""
    function = _NAMED[case.collate](case, process)
    if kind == "memory":
        return function
    from ray.data.collate_fn import NumpyBatchCollateFn

    class Collate(NumpyBatchCollateFn):  # type: ignore[misc]
        def __call__(self, batch: Batch) -> Any:
            return function(batch)

    return Collate()
