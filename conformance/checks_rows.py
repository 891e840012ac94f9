"""What a process's part of each batch holds: sizes, dtypes, rows and padding. Pure."""

from __future__ import annotations

import numpy as np

from conformance.arrival import delivered, delivered_dtype
from conformance.model import ID, PADDING
from conformance.observations import SeenEpoch
from conformance.rows import cells
from conformance.trial import Trial, at, columns_of, differ, key_of


def sizes(trial: Trial) -> str:
    """Each process's part of each batch has the expected number of rows."""
    for where, _, part, batch in trial.batches():
        for name, leaf in batch.leaves.items():
            if len(leaf.rows) != part.size:
                return f"{where}, column {name!r}: {len(leaf.rows)} rows, expected {part.size}"
    return ""


def dtypes(trial: Trial) -> str:
    """Each column has the dtype that was asked for, or its source's, on every process."""
    for where, process, _, batch in trial.batches():
        for column in columns_of(trial.case, process):
            leaf = batch.leaves.get(key_of(trial.case, process, column))
            want = delivered_dtype(column, trial.case.options_of(process).get("dtypes")).name
            if leaf is None or leaf.dtype != want:
                got = "no such column" if leaf is None else leaf.dtype
                return f"{where}, column {column.name!r}: {got}, expected {want}"
    return ""


def values(trial: Trial) -> str:
    """Real rows are the shard's rows, in order, where they are expected."""
    return _compare(trial, padding=False)


def padding(trial: Trial) -> str:
    """Rows of padding hold the value given, where they are expected."""
    return _compare(trial, padding=True)


def _compare(trial: Trial, *, padding: bool) -> str:
    for where, process, part, batch in trial.batches():
        for column in columns_of(trial.case, process):
            leaf = batch.leaves.get(key_of(trial.case, process, column))
            if leaf is None:
                return f"{where}: no column {column.name!r} but {sorted(batch.leaves)}"
            want = delivered(
                column, process, part.rows, part.padding, trial.case.options_of(process)
            )
            real = len(part.rows)
            span = slice(real, None) if padding else slice(0, real)
            if words := differ(leaf.rows[span], want[span], span.start or 0):
                kind = "padding" if padding else "value"
                return f"{where}, column {column.name!r}, {kind} {words}"
    return ""


def once(trial: Trial) -> str:
    """Over an epoch, a process's rows are the expected ones, each once, in any order."""
    for number, expectation, epochs in trial.epochs():
        for process, epoch in enumerate(epochs):
            shard = trial.case.shards[process]
            expected = [row for part in expectation.parts[process] for row in part.rows]
            dropped = bool(trial.case.options_of(process).get("drop_last"))
            pool = np.arange(shard.rows if dropped else len(expected))
            want = cells(ID, process, pool).tolist()
            got = real_ids(epoch)
            where = at(trial, number, process)
            if len(got) != len(expected):
                return f"{where}: {len(got)} real rows, expected {len(expected)}"
            if len(set(got)) != len(got) or not set(got) <= set(want):
                return f"{where}: ids {sorted(got)}, expected each of {want} at most once"
    return ""


def real_ids(epoch: SeenEpoch) -> list[int]:
    """Ids of the rows that are not padding, in the order in which they arrived."""
    ids = [batch.leaves["id"].rows.tolist() for batch in epoch.batches if "id" in batch.leaves]
    return [i for batch in ids for i in batch if i != PADDING]
