"""What a process's part of each batch holds: sizes, dtypes, rows and padding. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from conformance.arrival import delivered, delivered_dtype
from conformance.model import ID, Case
from conformance.observations import SeenBatch
from conformance.oracle import Part
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


def own_rows(trial: Trial) -> str:
    """Each process's part of each batch has the expected number of rows of its shard."""
    owners = _owners(trial.case)
    for where, process, part, batch in trial.batches():
        own = sum(owners.get(found, (-1,))[0] == process for found in _ids(batch))
        if own != len(part.rows) and ID in columns_of(trial.case, process):
            return f"{where}: got {own} rows of the shard, expected {len(part.rows)}"
    return ""


def real_first(trial: Trial) -> str:
    """In each process's part of each batch, rows of shards come first, and padding after them."""
    owners = _owners(trial.case)
    for where, process, part, batch in trial.batches():
        real = [position for position, found in enumerate(_ids(batch)) if found in owners]
        if real != list(range(len(part.rows))) and ID in columns_of(trial.case, process):
            return f"{where}: got real rows at {real}, expected the first {len(part.rows)}"
    return ""


def values(trial: Trial) -> str:
    """Columns are the expected ones; real rows are the shard's, in order unless shuffled."""
    for where, process, _, batch in trial.batches():
        want = {key_of(trial.case, process, c) for c in columns_of(trial.case, process)}
        if set(batch.leaves) != want:
            return f"{where}: columns {sorted(batch.leaves)}, expected {sorted(want)}"
    if not all(expectation.ordered for expectation in trial.expected.values()):
        return once(trial)
    return _compare(trial, padding=False)


def real_rows(trial: Trial) -> str:
    """Real rows are the shard's, in order, whatever columns are beside its own."""
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
            options = trial.case.options_of(process)
            real = len(part.rows)
            span = slice(real, None) if padding else slice(0, real)
            due = ((), part.padding) if padding else (part.rows, 0)
            want = delivered(column, trial.case.owner(process), *due, options)
            if words := differ(leaf.rows[span], want, span.start or 0):
                if padding:
                    return f"{where}, column {column.name!r}, padding {words}"
                moved = _moved(trial.case, process, part, batch)
                return f"{where}, column {column.name!r}, value {words}{moved}"
    return ""


def _moved(case: Case, process: int, part: Part, batch: SeenBatch) -> str:
    """Which rows came where others were due, as their ids tell: `process 1: 3, 2`."""
    owners = _owners(case)
    due = [(case.owner(process), row) for row in part.rows]
    came = [owners.get(found) for found in _ids(batch)[: len(due)]]
    if ID not in columns_of(case, process) or None in came or came == due:
        return ""
    return f"; by their ids came {_rows(came)}, due was {_rows(due)}"


def _rows(rows: Sequence[tuple[int, int] | None]) -> str:
    """`rows 3, 2 of process 1`, each process in its turn."""
    runs = groupby((row for row in rows if row is not None), key=lambda row: row[0])
    return " and ".join(
        f"rows {', '.join(str(row) for _, row in own)} of process {process}"
        for process, own in runs
    )


def once(trial: Trial) -> str:
    """Over an epoch, each expected row of a process arrives once, whole, in any order.

    Rows are told by their id, so shards without that column have nothing to tell.
    """
    owners = _owners(trial.case)
    for number, expectation, epochs in trial.epochs():
        for process, epoch in enumerate(epochs):
            if ID not in columns_of(trial.case, process):
                continue
            arrived: dict[int, str] = {}
            for k, batch in enumerate(epoch.batches):
                where = at(trial, number, process, k)
                for position, found in enumerate(_ids(batch)):
                    owner, row = owners.get(found, (-1, -1))
                    if owner not in (-1, process):
                        return f"{where}, row {position}: row {row} of process {owner}"
                    if row in arrived:
                        return f"{where}, row {position}: row {row}, as {arrived[row]} before"
                    if owner == process:
                        arrived[row] = f"{where}, row {position}"
                        if words := _broken(trial.case, process, batch, position, row):
                            return f"{where}, {words}"
            expected = sum(len(part.rows) for part in expectation.parts[process])
            if len(arrived) != expected:
                where = at(trial, number, process)
                missing = sorted(set(range(trial.case.shards[process].rows)) - set(arrived))
                lost = f"; missing are rows {missing}" if missing else ""
                return f"{where}: {len(arrived)} real rows came, expected {expected}{lost}"
    return ""


def _owners(case: Case) -> dict[int, tuple[int, int]]:
    """The process and row of each id of a case."""
    return {
        found: (process, row)
        for process, shard in enumerate(case.shards)
        if ID in shard.columns
        for row, found in enumerate(cells(ID, case.owner(process), np.arange(shard.rows)).tolist())
    }


def _broken(case: Case, process: int, batch: SeenBatch, position: int, row: int) -> str:
    """Words for the first column in which a row is not that row of the shard."""
    for column in columns_of(case, process):
        leaf = batch.leaves.get(key_of(case, process, column))
        want = delivered(column, case.owner(process), [row], 0, case.options_of(process))
        got = want[:0] if leaf is None else leaf.rows[position : position + 1]
        if words := differ(got, want, position):
            return f"column {column.name!r}, value of row {row} {words}"
    return ""


def _ids(batch: SeenBatch) -> list[int]:
    """The values of the column ``id``, padding included; none where there is no such column."""
    leaf = batch.leaves.get(ID.name)
    return [] if leaf is None or leaf.rows.ndim != 1 else leaf.rows.tolist()
