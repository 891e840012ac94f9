"""What is compared: each check gives words for the first thing that is wrong, or none. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from conformance.model import ID, PADDING, Case, Column, Topology
from conformance.observations import Seen, SeenBatch, SeenEpoch, SeenLeaf
from conformance.oracle import Expectation, Part, delivered, delivered_dtype
from conformance.rows import Array, cells
from conformance.sources import SPLIT_COLUMNS, split_rows

#: Batches that a process may still get after a peer has left alone: what was decided by then.
LOOKAHEAD = 64


@dataclass(frozen=True)
class Trial:
    """One run of one case: what was expected of each epoch and what each process saw."""

    case: Case
    topology: Topology
    expected: dict[int, Expectation]
    seen: list[Seen]

    def epochs(self) -> Iterator[tuple[int, Expectation, list[SeenEpoch]]]:
        """Each epoch: its number, what was expected, and what each process saw of it."""
        for number, expectation in self.expected.items():
            yield number, expectation, [s.epochs.get(number, SeenEpoch()) for s in self.seen]

    def batches(self) -> Iterator[tuple[str, int, Part, SeenBatch]]:
        """Each batch that was both expected and seen: where, process, its part, the batch."""
        for number, expectation, epochs in self.epochs():
            for process, epoch in enumerate(epochs):
                for k, (part, batch) in enumerate(
                    zip(expectation.parts[process], epoch.batches, strict=False)
                ):
                    yield _at(self, number, process, k), process, part, batch


Check = Callable[[Trial], str]


def _at(trial: Trial, epoch: int, process: int, k: int | None = None) -> str:
    where = f"process {process}"
    if len(trial.expected) > 1:
        where = f"epoch {epoch}, {where}"
    return where if k is None else f"{where}, batch {k}"


def _counts(trial: Trial) -> str:
    """Numbers of batches and endings are as expected, and equal where they must be."""
    for number, expectation, epochs in trial.epochs():
        ends = "; ".join(
            f"process {p} got {e.count} batches, then {e.ending()}" for p, e in enumerate(epochs)
        )
        label = f"epoch {number}: " if len(trial.expected) > 1 else ""
        if expectation.together and len({e.count for e in epochs}) > 1:
            return f"{label}the processes got different numbers of batches: {ends}"
        for process, epoch in enumerate(epochs):
            want = len(expectation.parts[process])
            if epoch.how not in expectation.endings[process].split(" or "):
                return (
                    f"{label}process {process} should end with {expectation.endings[process]} "
                    f"after {'' if expectation.exact else 'at most '}{want} batches: {ends}"
                )
            wrong = epoch.count != want if expectation.exact else epoch.count > want
            if wrong:
                most = "" if expectation.exact else "at most "
                return f"{label}process {process} should get {most}{want} batches: {ends}"
    return ""


def _alike(trial: Trial) -> str:
    """All processes get the same number of batches and end alike, whichever way."""
    for _, _, epochs in trial.epochs():
        ends = "; ".join(
            f"process {p} got {e.count} batches, then {e.ending()}" for p, e in enumerate(epochs)
        )
        if len({(e.count, e.how) for e in epochs}) > 1 or epochs[0].how not in ("stop", "error"):
            return f"the processes should all yield, or all raise, alike: {ends}"
    return ""


def _value_error(trial: Trial) -> str:
    """Where a ValueError is due, it is one on every process."""
    for number, expectation, epochs in trial.epochs():
        for process, epoch in enumerate(epochs):
            is_one = "ValueError" in epoch.error.get("mro", ())
            if expectation.value_error and epoch.how == "error" and not is_one:
                return f"{_at(trial, number, process)}: not a ValueError: {epoch.ending()}"
    return ""


def _names(trial: Trial) -> str:
    """The error of every process that raised holds the words that the case asks for."""
    for number, _, epochs in trial.epochs():
        for process, epoch in enumerate(epochs):
            text = epoch.error.get("message", "")
            missing = [name for name in trial.case.names if name not in text]
            if epoch.how == "error" and missing:
                return f"{_at(trial, number, process)}: no {missing[0]!r} in {epoch.ending()}"
    return ""


def _sizes(trial: Trial) -> str:
    """Each process's part of each batch has the expected number of rows."""
    for where, _, part, batch in trial.batches():
        for name, leaf in batch.leaves.items():
            if len(leaf.rows) != part.size:
                return f"{where}, column {name!r}: {len(leaf.rows)} rows, expected {part.size}"
    return ""


def _shape(trial: Trial) -> str:
    """Global shapes are (rows a process x processes, trailing), and equal on all processes."""
    for where, process, part, batch in trial.batches():
        for column in _columns(trial.case, process):
            leaf = batch.leaves.get(_key(trial.case, process, column))
            want = (part.size * trial.topology.processes, *column.trailing)
            if leaf is None or leaf.shape != want:
                got = "no such column" if leaf is None else f"global shape {leaf.shape}"
                return f"{where}, column {column.name!r}: {got}, expected {want}"
    return ""


def _sharding(trial: Trial) -> str:
    """One mesh axis over all devices splits the first dimension; equal on all processes."""
    first: tuple[str, object] | None = None
    devices = trial.topology.processes * trial.topology.devices
    for where, _, _, batch in trial.batches():
        for name, leaf in batch.leaves.items():
            s = leaf.sharding
            if s is None:
                return f"{where}, column {name!r}: no NamedSharding but {leaf.kind}"
            axis = next(iter(s["axes"]))
            if s["axes"] != {axis: devices} or s["spec"][:1] not in ([axis], [[axis]]):
                return f"{where}, column {name!r}: sharding {s}, expected one axis of {devices}"
            if any(dim is not None for dim in s["spec"][1:]):
                return f"{where}, column {name!r}: sharding {s} splits more than the rows"
            if first is None:
                first = (where, s)
            if s != first[1]:
                return f"{where}, column {name!r}: sharding {s}, but {first[0]} has {first[1]}"
    return ""


def _shares(trial: Trial) -> str:
    """Devices hold equal shares, and those of all processes cover the global rows once."""
    cover: dict[tuple[int, int, str], list[tuple[int, int]]] = {}
    sizes: dict[tuple[int, int, str], int] = {}
    for number, _, epochs in trial.epochs():
        for process, epoch in enumerate(epochs):
            for k, batch in enumerate(epoch.batches):
                for name, leaf in batch.leaves.items():
                    spans = [(first, end) for _, first, end in leaf.devices]
                    if len({end - first for first, end in spans}) > 1:
                        return f"{_at(trial, number, process, k)}, column {name!r}: shares {spans}"
                    cover.setdefault((number, k, name), []).extend(spans)
                    sizes[number, k, name] = leaf.shape[0] if leaf.shape else 0
    for (number, k, name), spans in cover.items():
        rows = sorted(row for first, end in spans for row in range(first, end))
        if rows != list(range(sizes[number, k, name])):
            return f"batch {k}, column {name!r}: devices hold rows {rows}, not each row once"
    return ""


def _dtypes(trial: Trial) -> str:
    """Each column has the dtype that was asked for, or its source's, on every process."""
    for where, process, _, batch in trial.batches():
        for column in _columns(trial.case, process):
            leaf = batch.leaves.get(_key(trial.case, process, column))
            want = delivered_dtype(column, trial.case.options_of(process).get("dtypes")).name
            if leaf is None or leaf.dtype != want:
                got = "no such column" if leaf is None else leaf.dtype
                return f"{where}, column {column.name!r}: {got}, expected {want}"
    return ""


def _values(trial: Trial) -> str:
    """Real rows are the shard's rows, in order, where they are expected."""
    return _compare(trial, padding=False)


def _padding(trial: Trial) -> str:
    """Rows of padding hold the value given, where they are expected."""
    return _compare(trial, padding=True)


def _compare(trial: Trial, *, padding: bool) -> str:
    for where, process, part, batch in trial.batches():
        for column in _columns(trial.case, process):
            leaf = batch.leaves.get(_key(trial.case, process, column))
            if leaf is None:
                return f"{where}: no column {column.name!r} but {sorted(batch.leaves)}"
            want = delivered(column, process, part, trial.case.options_of(process))
            real = len(part.rows)
            span = slice(real, None) if padding else slice(0, real)
            if words := _differ(leaf.rows[span], want[span], span.start or 0):
                kind = "padding" if padding else "value"
                return f"{where}, column {column.name!r}, {kind} {words}"
    return ""


def _differ(got: Array, want: Array, first: int) -> str:
    """Words for the first row that differs; dtypes may."""
    if got.shape != want.shape:
        return f"of shape {got.shape}, expected {want.shape}"
    wrong = np.argwhere((got != want) & ~((got != got) & (want != want)))  # noqa: PLR0124  NaN
    if not len(wrong):
        return ""
    at = tuple(wrong[0].tolist())
    row = (at[0] + first, *at[1:])
    return f"at row {row[0] if len(row) == 1 else row}: got {got[at]}, expected {want[at]}"


def _once(trial: Trial) -> str:
    """Over an epoch, a process's rows are the expected ones, each once, in any order."""
    for number, expectation, epochs in trial.epochs():
        for process, epoch in enumerate(epochs):
            shard = trial.case.shards[process]
            expected = [row for part in expectation.parts[process] for row in part.rows]
            dropped = bool(trial.case.options_of(process).get("drop_last"))
            pool = np.arange(shard.rows if dropped else len(expected))
            want = cells(ID, process, pool).tolist()
            got = _real_ids(epoch)
            where = _at(trial, number, process)
            if len(got) != len(expected):
                return f"{where}: {len(got)} real rows, expected {len(expected)}"
            if len(set(got)) != len(got) or not set(got) <= set(want):
                return f"{where}: ids {sorted(got)}, expected each of {want} at most once"
    return ""


def _real_ids(epoch: SeenEpoch) -> list[int]:
    ids = [batch.leaves["id"].rows.tolist() for batch in epoch.batches if "id" in batch.leaves]
    return [i for batch in ids for i in batch if i != PADDING]


def _sums(trial: Trial) -> str:
    """A computation over the batch gives, on every process, the sum of the bytes that all hold."""
    for number, _, epochs in trial.epochs():
        for k in range(min((e.count for e in epochs), default=0)):
            sums = [e.batches[k].sums for e in epochs]
            if any(s is None for s in sums):
                continue
            if any(s != sums[0] for s in sums):
                return f"{_at(trial, number, 0, k)}: a global sum differs between processes: {sums}"
            for index, name in enumerate(epochs[0].batches[k].leaves):
                parts = [e.batches[k].leaves.get(name) for e in epochs]
                want = _total([leaf for leaf in parts if leaf is not None])
                got = (sums[0] or [])[index]
                if want is not None and got != want:
                    where = _at(trial, number, 0, k)
                    return f"{where}, column {name!r}: global sum {got}, but all rows sum to {want}"
    return ""


def _total(parts: list[SeenLeaf]) -> float | None:
    """The sum of all processes' rows as the step computes it; None where it would round."""
    if parts[0].rows.dtype.kind in "iub":
        whole = sum(int(p.rows.astype(np.int64).sum()) for p in parts)
        return (whole + 2**31) % 2**32 - 2**31
    total = float(sum(p.rows.astype(np.float64).sum() for p in parts))
    largest = sum(float(np.abs(p.rows.astype(np.float64)).sum()) for p in parts)
    return total if largest < 2**20 and (total * 4).is_integer() else None


def _moved(trial: Trial) -> str:
    """A batch moved to a replicated sharding holds every process's rows, in the global order."""
    for number, _, epochs in trial.epochs():
        for k in range(min((e.count for e in epochs), default=0)):
            for index, name in enumerate(epochs[0].batches[k].leaves):
                want = _assembled([e.batches[k].leaves[name] for e in epochs])
                for process, epoch in enumerate(epochs):
                    moved = epoch.batches[k].moved
                    words = "not moved" if moved is None else _differ(moved[index], want, 0)
                    if words:
                        return f"{_at(trial, number, process, k)}, column {name!r} moved: {words}"
    return ""


def _assembled(parts: list[SeenLeaf]) -> Array:
    whole = np.zeros(parts[0].shape, parts[0].rows.dtype)
    for part in parts:
        start = 0
        for _, first, end in part.devices:
            whole[first:end] = part.rows[start : start + end - first]
            start += end - first
    return whole


def _threads(trial: Trial) -> str:
    """No thread that the iterator started is alive."""
    for s in trial.seen:
        if s.left_threads:
            return f"process {s.process} still has threads {', '.join(s.left_threads)}"
    return ""


def _lone_leave(trial: Trial) -> str:
    """Peers of one that left got no more than what was decided, and fewer than all."""
    for _, expectation, epochs in trial.epochs():
        least = min(trial.case.use.leave.values())
        for process, epoch in enumerate(epochs):
            most = min(least + LOOKAHEAD, len(expectation.parts[process]) - 1)
            if expectation.endings[process] == "error" and epoch.count > most:
                return f"process {process} got {epoch.count} batches; at most {most} are allowed"
    return ""


def _split_counts(trial: Trial) -> str:
    """All processes end alike, after the same number of batches of the same size."""
    epochs = [s.epochs.get(0, SeenEpoch()) for s in trial.seen]
    ends = "; ".join(
        f"process {p} got {e.count} batches, then {e.ending()}" for p, e in enumerate(epochs)
    )
    if len({(e.count, e.how) for e in epochs}) > 1 or epochs[0].how != "stop":
        return f"the processes should stop after the same number of batches: {ends}"
    size = trial.case.options_of(0)["batch_size"]
    for process, epoch in enumerate(epochs):
        sizes = [len(batch.leaves["id"].rows) for batch in epoch.batches]
        if any(n != size for n in sizes[:-1]) or any(n > size for n in sizes):
            return f"process {process}: batches of {sizes} rows, expected {size} each"
        if trial.case.options_of(0).get("drop_last") and any(n != size for n in sizes):
            return f"process {process}: batches of {sizes} rows with drop_last"
    return ""


def _split_rows(trial: Trial) -> str:
    """Every row of the dataset is delivered once; with ``drop_last`` at most once."""
    split = trial.case.split
    assert split is not None
    got = [(i, s.process) for s in trial.seen for e in s.epochs.values() for i in _real_ids(e)]
    gone = {row for dropped in split.dropped for row in dropped}
    rows = [row for row in range(split_rows(split)) if row not in gone]
    want = dict(zip(cells(ID, 0, np.asarray(rows, np.int64)).tolist(), rows, strict=True))
    counts = {i: [p for j, p in got if j == i] for i, _ in got}
    for i, processes in counts.items():
        if i not in want:
            return f"process {processes[0]} delivered id {i}, which is no row of the dataset"
        if len(processes) > 1:
            return f"row {want[i]} was delivered by processes {processes}"
    missing = [row for i, row in want.items() if i not in counts]
    if missing and not trial.case.options_of(0).get("drop_last"):
        return f"rows {missing} of the dataset were not delivered"
    for s in trial.seen:
        for k, batch in enumerate(b for e in s.epochs.values() for b in e.batches):
            ids, x = batch.leaves["id"].rows, batch.leaves["x"].rows
            for row, i in enumerate(ids.tolist()):
                own = (
                    np.full(3, PADDING)
                    if i == PADDING
                    else cells(SPLIT_COLUMNS[1], 0, np.array([want[i]]))[0]
                )
                if (x[row] != own).any():
                    return f"process {s.process}, batch {k}, row {row}: id {i} beside x {x[row]}"
    return ""


def _columns(case: Case, process: int) -> tuple[Column, ...]:
    """The columns that a process's batches must have: its own, or its peers' if it has no rows."""
    donor = next((s for s in (case.shards[process], *case.shards) if s.rows), case.shards[process])
    return donor.columns


def _key(case: Case, process: int, column: Column) -> str:
    return "" if case.shards[process].bare else column.name


_BASE: tuple[Check, ...] = (_counts, _value_error)
_CHECKS: dict[str, tuple[Check, ...]] = {
    "SIZE": (*_BASE, _sizes),
    "COUNT": (*_BASE, _sizes),
    "EMPTY": (*_BASE, _sizes),
    "EMPTY-1": (_alike,),
    "EMPTY-2": (*_BASE, _sizes, _shape, _dtypes, _padding, _values),
    "PAD": (*_BASE, _sizes, _padding),
    "PAD-3": (*_BASE, _sizes, _values, _padding),
    "PAD-6": (_counts, _names),
    "PLACE-1": (*_BASE, _shape),
    "PLACE-2": (*_BASE, _sharding, _shares),
    "PLACE-3": (*_BASE, _sizes, _shares, _values, _padding, _sums),
    "PLACE-4": (*_BASE, _moved, _sums),
    "DTYPE": (*_BASE, _dtypes),
    "DTYPE-4": (_counts, _names),
    "VALUE": (*_BASE, _values, _sums),
    "ORDER-1": (*_BASE, _sizes, _values, _padding),
    "ORDER-2": (*_BASE, _once),
    "ORDER-3": (*_BASE, _sizes),
    "ERROR": (_counts,),
    "SCHEMA": (*_BASE, _sums),
    "OPTION": (*_BASE, _values),
    "VALUE-3": (_counts, _names),
    "VALUE-4": (_counts, _names),
    "VALUE-5": (_counts, _names),
    "VALUE-7": (_counts, _names),
    "ERROR-4": (_counts, _names),
    "SCHEMA-5": (_counts, _names),
    "OPTION-4": (_counts, _names),
    "LEAVE-2": (_counts, _names, _lone_leave),
    "LEAVE-3": (_counts, _threads),
    "SPLIT": (_split_counts, _split_rows),
    "": (*_BASE, _sizes, _shape, _dtypes, _values, _padding, _sums),
}


def checks_of(clause: str) -> tuple[Check, ...]:
    """The checks that decide a clause."""
    group = clause.partition("-")[0]
    return _CHECKS.get(clause) or _CHECKS.get(group) or _CHECKS[""]
