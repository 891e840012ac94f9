"""Where the rows of a batch lie, and what a computation over all of them gives. Pure."""

from __future__ import annotations

import numpy as np

from conformance.observations import SeenLeaf
from conformance.rows import Array
from conformance.trial import Trial, at, columns_of, differ, key_of


def shape(trial: Trial) -> str:
    """Global shapes are (rows a process x processes, trailing), and equal on all processes."""
    for where, process, part, batch in trial.batches():
        for column in columns_of(trial.case, process):
            leaf = batch.leaves.get(key_of(trial.case, process, column))
            want = (part.size * trial.topology.processes, *column.trailing)
            if leaf is None or leaf.shape != want:
                got = "no such column" if leaf is None else f"global shape {leaf.shape}"
                return f"{where}, column {column.name!r}: {got}, expected {want}"
    return ""


def sharding(trial: Trial) -> str:
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


def shares(trial: Trial) -> str:
    """Devices hold equal shares, and those of all processes cover the global rows once."""
    cover: dict[tuple[int, int, str], list[tuple[int, int]]] = {}
    sizes: dict[tuple[int, int, str], int] = {}
    for number, _, epochs in trial.epochs():
        for process, epoch in enumerate(epochs):
            for k, batch in enumerate(epoch.batches):
                for name, leaf in batch.leaves.items():
                    spans = [(first, end) for _, first, end in leaf.devices]
                    if len({end - first for first, end in spans}) > 1:
                        return f"{at(trial, number, process, k)}, column {name!r}: shares {spans}"
                    cover.setdefault((number, k, name), []).extend(spans)
                    sizes[number, k, name] = leaf.shape[0] if leaf.shape else 0
    for (number, k, name), spans in cover.items():
        rows = sorted(row for first, end in spans for row in range(first, end))
        if rows != list(range(sizes[number, k, name])):
            return f"batch {k}, column {name!r}: devices hold rows {rows}, not each row once"
    return ""


def sums(trial: Trial) -> str:
    """A computation over the batch gives, on every process, the sum of the bytes that all hold."""
    for number, _, epochs in trial.epochs():
        for k in range(min((e.count for e in epochs), default=0)):
            sums = [e.batches[k].sums for e in epochs]
            if any(s is None for s in sums):
                continue
            if any(s != sums[0] for s in sums):
                return f"{at(trial, number, 0, k)}: a global sum differs between processes: {sums}"
            for index, name in enumerate(epochs[0].batches[k].leaves):
                parts = [e.batches[k].leaves.get(name) for e in epochs]
                want = _total([leaf for leaf in parts if leaf is not None])
                got = (sums[0] or [])[index]
                if want is not None and got != want:
                    where = at(trial, number, 0, k)
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


def moved(trial: Trial) -> str:
    """A batch moved to a replicated sharding holds every process's rows, in the global order."""
    for number, _, epochs in trial.epochs():
        for k in range(min((e.count for e in epochs), default=0)):
            for index, name in enumerate(epochs[0].batches[k].leaves):
                want = _assembled([e.batches[k].leaves[name] for e in epochs])
                for process, epoch in enumerate(epochs):
                    moved = epoch.batches[k].moved
                    words = "not moved" if moved is None else differ(moved[index], want, 0)
                    if words:
                        return f"{at(trial, number, process, k)}, column {name!r} moved: {words}"
    return ""


def _assembled(parts: list[SeenLeaf]) -> Array:
    whole = np.zeros(parts[0].shape, parts[0].rows.dtype)
    for part in parts:
        start = 0
        for _, first, end in part.devices:
            whole[first:end] = part.rows[start : start + end - first]
            start += end - first
    return whole
