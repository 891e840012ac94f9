"""Observations made by hand: what each process records when it sees the right thing, to be broken.

A fake is built from the oracle's answer. A test changes one thing in it and turns it into outcomes;
sums and moved arrays follow from the rows, as they would have, unless the test sets them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.arrival import delivered
from conformance.judge import expectations
from conformance.model import PADDING, Case, Topology
from conformance.oracle import Expectation, Part, expect
from conformance.rows import Array, cells
from conformance.sources import SPLIT_COLUMNS
from conformance.trial import columns_of, key_of
from harness import Event, Outcome, Returned


@dataclass
class FakeLeaf:
    """One array of a batch on one process: its rows, and the span of each local device."""

    rows: Array
    shape: tuple[int, ...]
    dtype: str
    devices: list[tuple[int, int, int]]
    sharding: dict[str, Any] | None

    def fields(self, path: str) -> dict[str, Any]:
        """The leaf as ``observe`` records it."""
        shards, start = [], 0
        for device, first, end in self.devices:
            data = self.rows[start : start + end - first]
            index = [[first, end], *([0, n] for n in self.shape[1:])]
            shards.append({"device": device, "index": index, "data": data})
            start += end - first
        found = {"path": path, "shape": list(self.shape), "dtype": self.dtype, "shards": shards}
        return found if self.sharding is None else found | {"sharding": self.sharding}


@dataclass
class FakeBatch:
    """One batch on one process; ``sums`` and ``moved`` replace what follows from the rows.

    ``raw`` replaces the record of the leaves.
    """

    leaves: dict[str, FakeLeaf]
    sums: list[float] | None = None
    moved: list[Array] | None = None
    raw: list[dict[str, Any]] | None = None


@dataclass
class FakeEpoch:
    """One epoch of one process. ``failed_in_step``: it ended in the step after its last batch."""

    batches: list[FakeBatch]
    how: str
    error: dict[str, Any] = field(default_factory=dict)
    failed_in_step: bool = False

    def fail(self, message: str = "no reason", *classes: str) -> None:
        """End in an error of these classes, the most derived first."""
        mro = [*(classes or ("ValueError",)), "Exception", "BaseException", "object"]
        self.how = "error"
        self.error = {"type": mro[0], "mro": mro, "message": message, "chain": [message]}


@dataclass
class FakeProcess:
    """What one process saw in all epochs."""

    epochs: list[FakeEpoch]
    left_threads: tuple[str, ...] = ()


@dataclass
class Fake:
    """What all processes of a case saw."""

    case: Case
    topology: Topology
    processes: list[FakeProcess]

    def epoch(self, process: int, epoch: int = 0) -> FakeEpoch:
        """One process's epoch."""
        return self.processes[process].epochs[epoch]

    def batch(self, process: int, k: int) -> FakeBatch:
        """One process's batch of the first epoch."""
        return self.epoch(process).batches[k]

    def leaf(self, process: int, k: int, column: str) -> FakeLeaf:
        """One process's array of a column in a batch of the first epoch."""
        return self.batch(process, k).leaves[column]

    def outcomes(self) -> list[Outcome]:
        """The outcomes that the harness would give."""
        return [self._outcome(rank, process) for rank, process in enumerate(self.processes)]

    def _outcome(self, rank: int, process: FakeProcess) -> Outcome:
        told: list[tuple[str, dict[str, Any]]] = []
        for number, epoch in enumerate(process.epochs):
            for k, batch in enumerate(epoch.batches):
                told.append(("next", {"k": k, "epoch": number}))
                told += [(kind, f | {"epoch": number}) for kind, f in self._told(number, k, batch)]
            if epoch.failed_in_step:
                told.pop()
            else:
                told.append(("next", {"k": len(epoch.batches), "epoch": number}))
            told.append(("end", {"epoch": number, "how": epoch.how, **epoch.error}))
        events = tuple(Event(seq, kind, float(seq), f) for seq, (kind, f) in enumerate(told))
        return Returned(rank=rank, events=events, left_threads=process.left_threads)

    def _told(self, number: int, k: int, batch: FakeBatch) -> list[tuple[str, dict[str, Any]]]:
        names = sorted(batch.leaves)
        leaves = [batch.leaves[n].fields(f"['{n}']" if n else "") for n in names]
        told: list[tuple[str, dict[str, Any]]] = [
            ("batch", {"k": k, "leaves": leaves if batch.raw is None else batch.raw})
        ]
        epochs = [p.epochs[number].batches for p in self.processes]
        if any(len(batches) <= k for batches in epochs):
            return told  # a computation across processes that some do not enter has no value
        everyone = [batches[k].leaves for batches in epochs]
        if self.case.use.move:
            moved = batch.moved
            if moved is None:
                moved = [_moved([own[n] for own in everyone if n in own]) for n in names]
            told.append(("moved", {"k": k, "leaves": moved}))
        if self.case.use.step:
            sums = batch.sums
            if sums is None:
                sums = [_sum([own[n].rows for own in everyone if n in own]) for n in names]
            told += [("step", {"k": k}), ("stepped", {"k": k, "sums": sums})]
        return told


def _moved(leaves: list[FakeLeaf]) -> Array:
    pieces = []
    for leaf in leaves:
        start = 0
        for _, first, end in leaf.devices:
            pieces.append((first, leaf.rows[start : start + end - first]))
            start += end - first
    return np.concatenate([rows for _, rows in sorted(pieces, key=lambda piece: piece[0])])


def _sum(parts: list[Array]) -> float:
    """The sum as JAX computes it: integers wrap at 32 bits."""
    if parts[0].dtype.kind in "iub":
        total = sum(int(part.sum(dtype=np.int64)) for part in parts)
        return int(np.array(total % 2**32, np.uint32).view(np.int32))
    return sum(float(part.astype(np.float64).sum()) for part in parts)


def right(case: Case, topology: Topology) -> Fake:
    """What all processes see when the case is answered as the oracle answers it."""
    if case.split is not None:
        raise ValueError("a split's rows are Ray's to share out: use right_split")
    processes = [FakeProcess([]) for _ in range(topology.processes)]
    for expectation in expectations(case, topology).values():
        for process, own in enumerate(processes):
            batches = [
                _batch(case, topology, process, part)
                for part in expectation.parts[process][: _count(case, expectation, process)]
            ]
            own.epochs.append(_epoch(case, batches, expectation.endings[process]))
    return Fake(case, topology, processes)


def _count(case: Case, expectation: Expectation, process: int) -> int:
    counts = [len(parts) for parts in expectation.parts]
    if expectation.together:
        return min(counts)
    if case.use.leave and process not in case.use.leave:
        return min(case.use.leave.values()) + 1
    return counts[process]


def _epoch(case: Case, batches: list[FakeBatch], ending: str) -> FakeEpoch:
    how = ending.split(" or ", maxsplit=1)[0]
    epoch = FakeEpoch(batches, how)
    if how == "error":
        epoch.fail("; ".join(("stopped", *case.names)))
    return epoch


def _batch(case: Case, topology: Topology, process: int, part: Part) -> FakeBatch:
    options = case.options_of(process)
    return FakeBatch(
        {
            key_of(case, process, column): leaf(
                topology, process, delivered(column, process, part.rows, part.padding, options)
            )
            for column in columns_of(case, process)
        }
    )


def leaf(topology: Topology, process: int, rows: Array) -> FakeLeaf:
    """``rows`` as a process's part of a global array, in equal shares on its devices."""
    devices = topology.devices
    every = topology.processes * devices
    share = len(rows) // devices
    first = process * len(rows)
    return FakeLeaf(
        rows.copy(),
        (len(rows) * topology.processes, *rows.shape[1:]),
        rows.dtype.name,
        [
            (process * devices + d, first + d * share, first + (d + 1) * share)
            for d in range(devices)
        ],
        {"mesh": list(range(every)), "axes": {"data": every}, "spec": ["data"]},
    )


def right_split(case: Case, topology: Topology, shares: list[list[int]]) -> Fake:
    """What all processes see when each reads these rows of the dataset."""
    options = case.options_of(0)
    answer = expect([len(share) for share in shares], options, topology.devices)
    processes = []
    for process, parts in enumerate(answer.parts):
        batches = []
        for part in parts:
            rows = np.array([shares[process][row] for row in part.rows], np.int64)
            leaves = {}
            for column in SPLIT_COLUMNS:
                real = cells(column, 0, rows)
                fill = np.full((part.padding, *column.trailing), PADDING, real.dtype)
                leaves[column.name] = leaf(topology, process, np.concatenate([real, fill]))
            batches.append(FakeBatch(leaves))
        processes.append(FakeProcess([_epoch(case, batches, answer.endings[process])]))
    return Fake(case, topology, processes)
