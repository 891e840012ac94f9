"""A dataset that was split: which of its rows arrived, over all processes. Pure."""

from __future__ import annotations

import numpy as np

from conformance.checks_rows import real_ids
from conformance.model import ID, PADDING
from conformance.observations import SeenEpoch
from conformance.rows import cells
from conformance.sources import SPLIT_COLUMNS, split_rows
from conformance.trial import Trial, endings


def split_ends(trial: Trial) -> str:
    """All processes end alike, after the same number of batches of the same size."""
    epochs = [s.epochs.get(0, SeenEpoch()) for s in trial.seen]
    if len({(e.count, e.how) for e in epochs}) > 1 or epochs[0].how != "stop":
        return f"the processes should stop after the same number of batches: {endings(epochs)}"
    size = trial.case.options_of(0)["batch_size"]
    for process, epoch in enumerate(epochs):
        sizes = [len(batch.leaves["id"].rows) for batch in epoch.batches]
        if any(n != size for n in sizes[:-1]) or any(n > size for n in sizes):
            return f"process {process}: batches of {sizes} rows, expected {size} each"
        if trial.case.options_of(0).get("drop_last") and any(n != size for n in sizes):
            return f"process {process}: batches of {sizes} rows with drop_last"
    return ""


def split_once(trial: Trial) -> str:
    """Every row of the dataset is delivered once; with ``drop_last`` at most once."""
    split = trial.case.split
    assert split is not None
    got = [(i, s.process) for s in trial.seen for e in s.epochs.values() for i in real_ids(e)]
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
