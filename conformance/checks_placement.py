"""Where the rows of a batch lie, and what a computation over all of them gives. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.observations import SeenBatch, SeenLeaf
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
            axis = next(iter(s["axes"]), "")
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
                        where = at(trial, number, process, k)
                        return f"{where}, column {name!r}: got shares {spans}, expected equal ones"
                    cover.setdefault((number, k, name), []).extend(spans)
                    size = max(sizes.get((number, k, name), 0), *leaf.shape[:1], 0)
                    sizes[number, k, name] = size
    for (number, k, name), spans in cover.items():
        rows = sorted(row for first, end in spans for row in range(first, end))
        size = sizes[number, k, name]
        if rows != list(range(size)):
            where = f"{at(trial, number, k=k)}, column {name!r}"
            return f"{where}: all devices hold rows {rows}, expected each of {size} rows once"
    return ""


def sums(trial: Trial) -> str:
    """A computation over the batch gives, on every process, the sum of the bytes that all hold."""
    for where, batches in _everywhere(trial):
        if any(b.sums is None for b in batches):
            continue
        found = [dict(zip(b.leaves, b.sums or (), strict=False)) for b in batches]
        for name in batches[0].leaves:
            got = [f.get(name) for f in found]
            if len({repr(g) for g in got}) > 1:
                return f"{where}, column {name!r}: the processes got the global sums {got}"
            parts = [b.leaves[name] for b in batches]
            want = _total(parts, replicated=bool(trial.case.sharding))
            if want is not None and got[0] != want:
                return f"{where}, column {name!r}: got the global sum {got[0]}, expected {want}"
    return ""


def _everywhere(trial: Trial) -> Iterator[tuple[str, list[SeenBatch]]]:
    """Each batch that every process got, in the order of processes."""
    for number, _, epochs in trial.epochs():
        for k, batches in enumerate(zip(*(e.batches for e in epochs), strict=False)):
            yield at(trial, number, k=k), list(batches)


def _total(parts: list[SeenLeaf], *, replicated: bool) -> float | None:
    """The sum of all rows as the step computes it; None where it would round.

    ``replicated``: several processes may hold the same row of the global array.
    """
    pieces = [p.rows for p in parts]
    if replicated:
        rows: dict[int, Array] = {}
        for part in parts:
            spans = sorted({(first, end) for _, first, end in part.devices})
            numbers = [row for first, end in spans for row in range(first, end)]
            rows.update(zip(numbers, part.rows, strict=False))
        pieces = list(rows.values())
    if all(p.dtype.kind in "iub" for p in pieces):
        whole = sum(int(p.astype(np.int64).sum()) for p in pieces)
        return (whole + 2**31) % 2**32 - 2**31
    flat = np.concatenate([p.astype(np.float64).ravel() for p in pieces])
    exact = bool(np.abs(flat).sum() < 2**20) and bool((flat * 4 % 1 == 0).all())
    return float(flat.sum()) if exact else None


def moved(trial: Trial) -> str:
    """A batch moved to a replicated sharding holds every process's rows, in the global order."""
    for where, batches in _everywhere(trial):
        for name in batches[0].leaves:
            parts = [b.leaves[name] for b in batches if name in b.leaves]
            want = _assembled(parts) if len(parts) == len(batches) else None
            if want is None:
                return f"{where}, column {name!r}: the processes hold no parts of one global array"
            for process, batch in enumerate(batches):
                found = dict(zip(batch.leaves, batch.moved or (), strict=False))
                words = differ(found[name], want, 0) if name in found else "is not there"
                if words:
                    return f"{where}, process {process}, column {name!r}, moved value {words}"
    return ""


def _assembled(parts: list[SeenLeaf]) -> Array | None:
    """The rows of all processes in the global order; None where they do not fit together."""
    pieces: list[tuple[int, Array]] = []
    for part in parts:
        start = 0
        for _, first, end in part.devices:
            pieces.append((first, part.rows[start : start + end - first]))
            start += end - first
    ordered = [rows for _, rows in sorted(pieces, key=lambda piece: piece[0])]
    if len({rows.shape[1:] for rows in ordered}) != 1:
        return None
    return np.concatenate(ordered)
