"""Observations made by hand: what each process records when it sees the right thing, to be broken.

A fake is built from the oracle's answer. A test changes one thing in it and turns it into outcomes;
sums and moved arrays follow from the rows, as they would have, unless the test sets them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance import shardings
from conformance.arrival import delivered
from conformance.judge import expectations
from conformance.model import PADDING, Case, Topology
from conformance.oracle import Expectation, Part, expect
from conformance.rows import Array, cells
from conformance.sources import SPLIT_COLUMNS
from conformance.trial import columns_of, key_of
from harness import Died, Event, Hung, Outcome, Returned


@dataclass
class FakeLeaf:
    """One array of a batch on one process: its rows, and the span of each local device."""

    rows: Array
    shape: tuple[int, ...]
    dtype: str
    devices: list[tuple[int, int, int]]
    sharding: dict[str, Any] | None

    def pieces(self) -> list[tuple[int, int, int, Array]]:
        """Device, first row, end row and content of each addressable shard."""
        base = min(first for _, first, _ in self.devices)
        return [(d, f, e, self.rows[f - base : e - base]) for d, f, e in self.devices]

    def fields(self, key: str) -> dict[str, Any]:
        """The leaf as ``observe`` records it, under its column's name or its path in a tree."""
        path = key if key == "" or key[0] in "[." else f"['{key}']"
        shards = []
        for device, first, end, data in self.pieces():
            index = [[first, end], *([0, n] for n in self.shape[1:])]
            shards.append({"device": device, "index": index, "data": data})
        found = {"path": path, "shape": list(self.shape), "dtype": self.dtype, "shards": shards}
        return found if self.sharding is None else found | {"sharding": self.sharding}


@dataclass
class FakeBatch:
    """One batch on one process; ``sums`` and ``moved`` replace what follows from the rows.

    ``raw`` replaces the record of the leaves.
    """

    leaves: dict[str, FakeLeaf]
    tree: str = "PyTreeDef(*)"
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
        self.error = {
            "type": mro[0],
            "mro": mro,
            "message": message,
            "chain": [message],
            "traceback": "",
        }


@dataclass
class FakeProcess:
    """What one process saw in all epochs, logged, and counted in its ledger.

    ``lost``: the signal that took it, in place of an end.
    """

    epochs: list[FakeEpoch]
    left_threads: tuple[str, ...] = ()
    logs: list[str] = field(default_factory=list)
    stats: list[dict[str, int]] = field(default_factory=list)
    lost: str = ""


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
        told += [("log", {"level": "WARNING", "text": text}) for text in process.logs]
        told += [("stats", row) for row in process.stats]
        events = tuple(Event(seq, kind, float(seq), f) for seq, (kind, f) in enumerate(told))
        if process.lost == "SIGKILL":
            return Died(rank=rank, events=events[:3], signal=process.lost)
        if process.lost == "SIGSTOP":
            return Hung(rank=rank, events=events[:3], stacks="", why="", stopped=True)
        return Returned(rank=rank, events=events, left_threads=process.left_threads)

    def _told(self, number: int, k: int, batch: FakeBatch) -> list[tuple[str, dict[str, Any]]]:
        names = sorted(batch.leaves)
        leaves = [batch.leaves[n].fields(n) for n in names] if batch.raw is None else batch.raw
        told: list[tuple[str, dict[str, Any]]] = [
            ("batch", {"k": k, "tree": batch.tree, "leaves": leaves})
        ]
        epochs = [e.batches for p in self.processes for e in p.epochs[number : number + 1]]
        if len(epochs) < len(self.processes) or any(len(batches) <= k for batches in epochs):
            return told  # a computation across processes that some do not enter has no value
        everyone = [batches[k].leaves for batches in epochs]
        if self.case.use.move:
            moved = batch.moved
            if moved is None:
                moved = [self._whole([own[n] for own in everyone if n in own]) for n in names]
            told.append(("moved", {"k": k, "leaves": moved}))
        if self.case.use.step:
            sums = batch.sums
            if sums is None:
                sums = [_sum(self._whole([own[n] for own in everyone if n in own])) for n in names]
            told += [("step", {"k": k}), ("stepped", {"k": k, "sums": sums})]
        return told

    def _whole(self, leaves: list[FakeLeaf]) -> Array:
        """The rows of all processes in the order of the global array; copies count once."""
        pieces = [(first, data) for leaf in leaves for _, first, _, data in leaf.pieces()]
        if self.case.sharding:
            pieces = list(dict(pieces).items())
        return np.concatenate([data for _, data in sorted(pieces, key=lambda piece: piece[0])])


def _sum(rows: Array) -> float:
    """The sum as JAX computes it: integers wrap at 32 bits."""
    if rows.dtype.kind in "iub":
        return int(np.array(int(rows.sum(dtype=np.int64)) % 2**32, np.uint32).view(np.int32))
    with np.errstate(invalid="ignore"):  # of infinities of both signs
        return float(rows.astype(np.float64).sum())


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
    fake = Fake(case, topology, processes)
    for process, own in enumerate(processes):
        own.stats = [_ledger(case, process, epoch) for epoch in own.epochs]
    if "EMPTY-6" in case.clauses:
        processes[0].logs.append("no process has a row")
    if case.use.absent or case.use.lost:
        _lose_peers(fake)
    if "SHARD-4" in case.clauses or "EPOCH-4" in case.clauses:
        _fail_all(fake)
    return fake


def _lose_peers(fake: Fake) -> None:
    """Let the others get two batches, then an error that names who is lost."""
    use = fake.case.use
    lost = {*use.absent, *use.lost}
    for process, own in enumerate(fake.processes):
        del own.epochs[0].batches[2:]
        own.lost = use.lost.get(process, "")
        if process in use.absent:
            own.epochs.clear()
        elif process not in lost:
            own.epochs[0].fail(f"process {min(lost)} has not been heard of")


def _fail_all(fake: Fake) -> None:
    """End each process in an error, in the epoch after the one that it left."""
    for own in fake.processes:
        last = 1 if own.epochs[0].how == "left" else 0
        del own.epochs[last + 1 :], own.epochs[last].batches[1 - last :]
        own.epochs[last].fail("the rows of processes 0 and 1 differ")


def _ledger(case: Case, process: int, epoch: FakeEpoch) -> dict[str, int]:
    """Rows that came, and the rest of the shard where the end accounts for it."""
    rows = case.shards[process].rows
    ids = [batch.leaves["id"].rows for batch in epoch.batches if "id" in batch.leaves]
    came = sum(int((i != PADDING).sum()) for i in ids)
    rest = {"dropped": rows - came, "discarded": 0} if epoch.how == "stop" else {}
    kept = {"delivered": came, "held": 0, "dropped": 0, "discarded": rows - came} | rest
    return {"rows_read": rows} | {f"rows_{name}": count for name, count in kept.items()}


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
    options, owner = case.options_of(process), case.owner(process)
    columns = {
        key_of(case, process, column): delivered(column, owner, part.rows, part.padding, options)
        for column in columns_of(case, process)
    }
    if "mask_column" in options:
        columns[options["mask_column"]] = np.arange(part.size) < len(part.rows)
    return FakeBatch(
        {name: leaf(topology, process, rows, case.sharding) for name, rows in columns.items()}
    )


def leaf(topology: Topology, process: int, rows: Array, sharding: str = "") -> FakeLeaf:
    """``rows`` as a process's part of a global array, as one of ``shardings.py`` places them."""
    processes, devices = topology.processes, topology.devices
    ids = list(range(processes * devices))
    own = ids[process * devices : (process + 1) * devices]
    first = 0 if sharding == "replicated" else process * len(rows)
    total = len(rows) * shardings.row_shards(sharding, topology)
    share = len(rows) // shardings.row_divisor(sharding, topology)
    starts = [first + (0 if sharding == "data_model" else i * share) for i in range(devices)]
    axes: dict[str, dict[str, Any]] = {
        "": {"axes": {"data": len(ids)}, "spec": ["data"]},
        "data_model": {"axes": {"data": processes, "model": devices}, "spec": ["data"]},
        "two_axes": {"axes": {"host": processes, "chip": devices}, "spec": [["host", "chip"]]},
        "replicated": {"axes": {"data": devices, "copy": processes}, "spec": ["data"]},
    }
    return FakeLeaf(
        rows.copy(),
        (total, *rows.shape[1:]),
        rows.dtype.name,
        [(device, start, start + share) for device, start in zip(own, starts, strict=True)],
        {"mesh": ids, **axes[sharding]},
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
