"""Faults in what is delivered: rows, padding, counts, dtypes, shapes, places, sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.model import PADDING
from tests.conformance.breaks import (
    DELIVERY,
    Break,
)
from tests.conformance.faking import Fake, leaf

#: The clauses that ask for all that is delivered, values and all.
WHOLE = {"COUNT-6", "EMPTY-2", "OPTION-5", "TWO-1"}
#: Those that compare each real row at its place.
ROWS = WHOLE | {"COUNT-1", "PLACE-3", "VALUE-1", "ORDER-1"}
ALL = set(DELIVERY.clauses)


def _rows(fake: Fake, process: int, k: int, change: Callable[[Any], None]) -> None:
    """Change the rows of every column of a batch in the same way."""
    for column in fake.batch(process, k).leaves.values():
        change(column.rows)


def _swap(fake: Fake) -> None:
    def swap(rows: Any) -> None:
        rows[[0, 2]] = rows[[2, 0]]

    _rows(fake, 0, 1, swap)


def swap_in_one_column(fake: Fake) -> None:
    """Two rows of one column in each other's place."""
    rows = fake.leaf(0, 1, "x").rows
    rows[[0, 2]] = rows[[2, 0]]


def double(fake: Fake) -> None:
    """A row in the place of the next."""
    _rows(fake, 0, 1, lambda rows: rows.__setitem__(1, rows[0]))


def _repeat_as_padding(fake: Fake) -> None:
    """Fill with the first rows, as samplers do that make shards even by repetition."""
    _rows(fake, 1, 1, lambda rows: rows.__setitem__(slice(1, 4), rows[0]))


def lose(fake: Fake) -> None:
    """Padding in the place of a row."""
    _rows(fake, 0, 1, lambda rows: rows.__setitem__(1, PADDING))


def take_from_peer(fake: Fake) -> None:
    """A row of process 1 on process 0."""
    for name, column in fake.batch(0, 1).leaves.items():
        column.rows[1] = fake.leaf(1, 0, name).rows[1]


def _change_value(fake: Fake) -> None:
    fake.leaf(0, 1, "x").rows[2, 1] = 0.5


def _change_padding(fake: Fake) -> None:
    fake.leaf(1, 1, "x").rows[3] = 0


def _change_one_cell_of_padding(fake: Fake) -> None:
    fake.leaf(1, 1, "x").rows[3, 2] = 0


def _pad_first(fake: Fake) -> None:
    _rows(fake, 1, 1, lambda rows: rows.__setitem__(slice(None), np.roll(rows, 1, axis=0)))


def end_early_on_one(fake: Fake) -> None:
    """The last batch is missing on process 1."""
    fake.epoch(1).batches.pop()


def _end_early_on_all(fake: Fake) -> None:
    fake.epoch(0).batches.pop()
    fake.epoch(1).batches.pop()


def _add_batch_of_padding(fake: Fake) -> None:
    for process in (0, 1):
        added = {
            name: leaf(fake.topology, process, np.full_like(old.rows, PADDING))
            for name, old in fake.batch(process, 1).leaves.items()
        }
        fake.epoch(process).batches.append(replace(fake.batch(process, 2), leaves=added))


def _raise_on_one(fake: Fake) -> None:
    fake.epoch(1).fail("process 1 could not")


def raise_on_all(fake: Fake) -> None:
    """An error instead of the end, on all processes."""
    fake.epoch(0).fail("process 1 could not")
    fake.epoch(1).fail("process 1 could not")


def _never_end(fake: Fake) -> None:
    fake.epoch(0).how = fake.epoch(1).how = "endless"


def _widen(*processes: int) -> Callable[[Fake], None]:
    def widen(fake: Fake) -> None:
        for process in processes:
            column = fake.leaf(process, 1, "x")
            column.rows, column.dtype = column.rows.astype(np.float64), "float64"

    return widen


def _local_shape(fake: Fake) -> None:
    fake.leaf(0, 1, "x").shape = (4, 3)


def _trailing_shape(fake: Fake) -> None:
    for process in (0, 1):
        column = fake.leaf(process, 1, "x")
        fake.batch(process, 1).leaves["x"] = leaf(fake.topology, process, column.rows[..., None])


def _rename(fake: Fake) -> None:
    for process in (0, 1):
        batch = fake.batch(process, 1)
        batch.leaves = {"id": batch.leaves["id"], "y": batch.leaves["x"]}


def _add_column(fake: Fake) -> None:
    for process in (0, 1):
        batch = fake.batch(process, 1)
        batch.leaves["mask"] = leaf(fake.topology, process, np.ones(4, bool))


def _sharding(process: int, **fields: object) -> Callable[[Fake], None]:
    def change(fake: Fake) -> None:
        column = fake.leaf(process, 1, "x")
        column.sharding = {**(column.sharding or {}), **fields}

    return change


def _no_sharding(fake: Fake) -> None:
    fake.leaf(0, 1, "x").sharding = None


def _unequal_shares(fake: Fake) -> None:
    fake.leaf(0, 1, "x").devices = [(0, 0, 1), (1, 1, 4)]


def _overlapping_shares(fake: Fake) -> None:
    fake.leaf(1, 1, "x").devices = [(2, 0, 2), (3, 2, 4)]


def _drop_padding(fake: Fake) -> None:
    for process in (0, 1):
        for name, column in fake.batch(process, 2).leaves.items():
            fake.batch(process, 2).leaves[name] = leaf(fake.topology, process, column.rows[:2])


def _sum_on_one(fake: Fake) -> None:
    fake.batch(0, 1).sums = [1, 2.0]


def _sum_on_all(fake: Fake) -> None:
    fake.batch(0, 1).sums = fake.batch(1, 1).sums = [1, 2.0]


def _moved_value(fake: Fake) -> None:
    ids = np.concatenate([fake.leaf(p, 1, "id").rows for p in (0, 1)])
    x = np.concatenate([fake.leaf(p, 1, "x").rows for p in (0, 1)])
    x[5, 0] += 1
    fake.batch(1, 1).moved = [ids, x]


def _moved_order(fake: Fake) -> None:
    fake.batch(1, 1).moved = [
        np.concatenate([fake.leaf(p, 1, name).rows for p in (1, 0)]) for name in ("id", "x")
    ]


def _not_moved(fake: Fake) -> None:
    fake.batch(1, 1).moved = []


def _leave_thread(fake: Fake) -> None:
    fake.processes[1].left_threads = ("reader",)


DELIVERED_WRONG = (
    Break(
        "rows swapped",
        _swap,
        ROWS,
        ("process 0, batch 1, column 'id', value at row 0: got 58, expected 42",),
    ),
    Break(
        "rows swapped in one column",
        swap_in_one_column,
        ROWS | {"ORDER-2"},
        ("process 0, batch 1, column 'x', value", "got 57.0, expected 41.0"),
    ),
    Break("row doubled", double, ROWS | {"ORDER-2"}, ("process 0, batch 1", "row")),
    Break("row lost", lose, ROWS | {"ORDER-2", "SIZE-1", "PAD-3"}, ("process 0",)),
    Break(
        "row of a peer",
        take_from_peer,
        ROWS | {"ORDER-2", "SIZE-1"},
        ("process 0, batch 1",),
    ),
    Break(
        "padded by repetition",
        _repeat_as_padding,
        WHOLE | {"PAD-1", "PAD-3", "SYNC-2", "SIZE-1", "ORDER-1", "ORDER-2"},
        ("process 1, batch 1",),
    ),
    Break(
        "value changed",
        _change_value,
        ROWS | {"ORDER-2"},
        ("process 0, batch 1, column 'x', value", "got 0.5, expected 57.25"),
    ),
    Break(
        "padding changed",
        _change_padding,
        WHOLE | {"PAD-1", "SYNC-2"},
        ("process 1, batch 1, column 'x', padding at row (3, 0): got 0.0, expected -7.0",),
    ),
    Break(
        "one cell of padding changed",
        _change_one_cell_of_padding,
        WHOLE | {"PAD-1", "SYNC-2"},
        ("process 1, batch 1, column 'x', padding at row (3, 2): got 0.0, expected -7.0",),
    ),
    Break(
        "padding first", _pad_first, ROWS | {"PAD-1", "PAD-3", "SYNC-2"}, ("process 1, batch 1",)
    ),
    Break(
        "one ends early",
        end_early_on_one,
        ALL,
        ("process 0 got 3 batches, then stop; process 1 got 2 batches, then stop",),
    ),
    Break(
        "all end early",
        _end_early_on_all,
        ALL - {"EMPTY-1"},
        ("process 0 should get 3 batches: process 0 got 2 batches, then stop",),
    ),
    Break(
        "a batch of padding more",
        _add_batch_of_padding,
        ALL - {"EMPTY-1"},
        ("process 0 should get 3 batches: process 0 got 4 batches",),
    ),
    Break(
        "one raises",
        _raise_on_one,
        ALL,
        ("process 1 got 3 batches, then ValueError: process 1 could not",),
    ),
    Break("all raise", raise_on_all, ALL - {"EMPTY-1"}, ("process 0 should end with stop",)),
    Break("no end", _never_end, ALL, ("process 0 got 3 batches, then endless",)),
    Break(
        "dtype changed",
        _widen(0, 1),
        WHOLE | {"DTYPE-1"},
        ("process 0, batch 1, column 'x': float64, expected float32",),
    ),
    Break(
        "dtype changed on one",
        _widen(1),
        WHOLE | {"DTYPE-1"},
        ("process 1, batch 1, column 'x': float64, expected float32",),
    ),
    Break(
        "shape of one process alone",
        _local_shape,
        WHOLE | {"PLACE-1"},
        ("process 0, batch 1, column 'x': global shape (4, 3), expected (8, 3)",),
    ),
    Break(
        "trailing shape changed",
        _trailing_shape,
        ROWS | {"PLACE-1", "PAD-1", "SYNC-2", "ORDER-2"},
        ("process 0, batch 1, column 'x'",),
    ),
    Break(
        "column renamed",
        _rename,
        ROWS | {"PLACE-1", "PAD-1", "SYNC-2", "ORDER-2", "DTYPE-1"},
        ("process 0, batch 1",),
    ),
    Break(
        "column added",
        _add_column,
        ROWS,
        ("process 0, batch 1: columns ['id', 'mask', 'x'], expected ['id', 'x']",),
    ),
    Break(
        "sharded over two axes",
        _sharding(0, axes={"a": 2, "b": 2}, spec=[["a", "b"]]),
        {"PLACE-2"},
        ("process 0, batch 1, column 'x'", "expected one axis of 4"),
    ),
    Break("replicated", _sharding(0, spec=[]), {"PLACE-2"}, ("process 0, batch 1, column 'x'",)),
    Break(
        "sharded within rows",
        _sharding(0, spec=["data", "data"]),
        {"PLACE-2"},
        ("process 0, batch 1, column 'x'", "more than the rows"),
    ),
    Break(
        "sharding differs",
        _sharding(1, mesh=[3, 2, 1, 0]),
        {"PLACE-2"},
        ("process 1, batch 1, column 'x'", "but process 0, batch 0 has"),
    ),
    Break("no mesh", _no_sharding, {"PLACE-2"}, ("process 0, batch 1, column 'x': no Named",)),
    Break(
        "unequal shares of devices",
        _unequal_shares,
        {"PLACE-2"},
        ("process 0, batch 1, column 'x': got shares [(0, 1), (1, 4)], expected equal ones",),
    ),
    Break(
        "overlapping shares of devices",
        _overlapping_shares,
        {"PLACE-2"},
        ("batch 1, column 'x'", "expected each of 8 rows once"),
    ),
    Break(
        "padding forgotten",
        _drop_padding,
        WHOLE | {"SIZE-1", "PAD-1", "SYNC-2", "PLACE-1", "ORDER-3"},
        ("batch 2",),
    ),
    Break(
        "sum differs",
        _sum_on_one,
        (WHOLE - {"EMPTY-2"}) | {"PLACE-3", "VALUE-1"},
        ("batch 1, column 'id': the processes got the global sums [1, ",),
    ),
    Break(
        "sum wrong on all",
        _sum_on_all,
        (WHOLE - {"EMPTY-2"}) | {"PLACE-3", "VALUE-1"},
        ("batch 1, column 'id': got the global sum 1, expected",),
    ),
    Break(
        "moved value changed",
        _moved_value,
        {"PLACE-4"},
        ("batch 1, process 1, column 'x', moved value at row (5, 0): got", "expected"),
    ),
    Break("moved rows swapped", _moved_order, {"PLACE-4"}, ("batch 1, process 1, column 'id'",)),
    Break("not moved", _not_moved, {"PLACE-4"}, ("batch 1, process 1, column 'id'", "not there")),
    Break("thread left", _leave_thread, {"LEAVE-3"}, ("process 1 still has threads reader",)),
)
