"""A dataset that was split: which of its rows arrived, over all processes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.model import ID, PADDING, Split
from conformance.observations import SeenBatch, SeenEpoch
from conformance.rows import Array, cells
from conformance.sources import SPLIT_COLUMNS, split_rows
from conformance.trial import Trial, endings


def split_ends(trial: Trial) -> str:
    """All processes stop after the same number of batches of the same sizes."""
    epochs = [s.epochs.get(0, SeenEpoch()) for s in trial.seen]
    if len({(e.count, e.how) for e in epochs}) > 1 or epochs[0].how != "stop":
        return f"the processes should stop after the same number of batches: {endings(epochs)}"
    options = trial.case.options_of(0)
    size = options["batch_size"]
    full = bool(options.get("drop_last")) or options.get("paddings") is not None
    first: list[int] | None = None
    for process, epoch in enumerate(epochs):
        sizes = [len(leaf.rows) for b in epoch.batches for leaf in list(b.leaves.values())[:1]]
        if any(n != size for n in (sizes if full else sizes[:-1])) or any(n > size for n in sizes):
            return f"process {process}: batches of {sizes} rows, expected {size} each"
        first = sizes if first is None else first
        if sizes != first:
            return f"process {process}: batches of {sizes} rows, but process 0 has {first}"
    return ""


def split_once(trial: Trial) -> str:
    """Every row of the dataset is delivered once and whole; with ``drop_last`` at most once."""
    assert trial.case.split is not None
    dropped = bool(trial.case.options_of(0).get("drop_last"))
    want = _rows_of(trial.case.split)
    arrived: dict[int, str] = {}
    for where, batch in _batches(trial):
        found = {name: leaf.rows for name, leaf in batch.leaves.items()}
        if words := _misshapen(found):
            return f"{where}: {words}"
        for position, i in enumerate(found[ID.name].tolist()):
            x = found["x"][position]
            at = f"{where}, row {position}"
            if i == PADDING and not dropped:
                if (x != PADDING).any():
                    return f"{at}: got {x} in column 'x' of a row of padding, expected {PADDING}"
                continue
            if i not in want:
                return f"{at}: id {i}, which is no row of the dataset"
            row, own = want[i]
            if row in arrived:
                return f"{at}: row {row} of the dataset, which {arrived[row]} had already"
            if (x != own).any():
                return f"{at}: got {x} in column 'x' of row {row} of the dataset, expected {own}"
            arrived[row] = at
    missing = [row for row, _ in want.values() if row not in arrived]
    if missing and not dropped:
        return f"rows {missing} of the dataset were not delivered"
    return ""


def _batches(trial: Trial) -> Iterator[tuple[str, SeenBatch]]:
    for s in trial.seen:
        for k, batch in enumerate(s.epochs.get(0, SeenEpoch()).batches):
            yield f"process {s.process}, batch {k}", batch


def _rows_of(split: Split) -> dict[int, tuple[int, Array]]:
    """The rows of the dataset that some process should read, by id: row, and its ``x``."""
    gone = {row for dropped in split.dropped for row in dropped}
    rows = np.array([row for row in range(split_rows(split)) if row not in gone], np.int64)
    ids, x = (cells(column, 0, rows) for column in SPLIT_COLUMNS)
    return dict(zip(ids.tolist(), zip(rows.tolist(), x, strict=True), strict=True))


def _misshapen(found: dict[str, Array]) -> str:
    want = {column.name: column.trailing for column in SPLIT_COLUMNS}
    got = {name: rows.shape[1:] for name, rows in found.items()}
    if got != want:
        return f"columns of trailing shapes {got}, expected {want}"
    sizes = {name: len(rows) for name, rows in found.items()}
    if len(set(sizes.values())) > 1:
        return f"columns of {sizes} rows"
    return ""
