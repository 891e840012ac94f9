"""Faults in rows that may arrive in any order: of a shuffle, and of a split dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.model import PADDING
from tests.conformance.breaks import (
    P2D2,
    SHUFFLED,
    SPLIT,
    SPLIT_DROPPED,
    SPLIT_EVEN,
    Break,
)
from tests.conformance.breaks_delivery import (
    double,
    end_early_on_one,
    lose,
    raise_on_all,
    swap_in_one_column,
    take_from_peer,
)
from tests.conformance.faking import Fake, leaf


def _reorder(fake: Fake) -> None:
    """Give process 0 its rows in another order, over batches."""
    batches = fake.epoch(0).batches
    for name, column in batches[0].leaves.items():
        other = batches[1].leaves[name]
        column.rows[[0, 1]], other.rows[[3, 2]] = other.rows[[3, 2]], column.rows[[0, 1]]


SHUFFLED_WRONG = (
    Break("another order", _reorder, set(), (), SHUFFLED),
    Break("row swapped for a peer's", take_from_peer, {"ORDER-2", "OPTION-5"}, (), SHUFFLED),
    Break(
        "row doubled",
        double,
        {"ORDER-2", "OPTION-5"},
        ("process 0, batch 1, row 1: row 4, as process 0, batch 1, row 0 before",),
        SHUFFLED,
    ),
    Break(
        "row lost",
        lose,
        {"ORDER-2", "OPTION-5"},
        ("process 0: 8 real rows came, expected 9; missing are rows [5]",),
        SHUFFLED,
    ),
    Break(
        "columns shuffled apart",
        swap_in_one_column,
        {"ORDER-2", "OPTION-5"},
        ("process 0, batch 1, column 'x', value of row 4",),
        SHUFFLED,
    ),
    Break(
        "short in mid-stream",
        lambda fake: fake.batch(0, 1).leaves.update(
            {n: leaf(P2D2, 0, c.rows[:2]) for n, c in fake.batch(0, 1).leaves.items()}
        ),
        {"ORDER-2", "ORDER-3", "OPTION-5"},
        ("process 0",),
        SHUFFLED,
    ),
)


def _row(process: int, k: int, position: int, i: int, x: float | None = None) -> Any:
    """Replace a row by this id and, where given, this x."""

    def change(fake: Fake) -> None:
        fake.leaf(process, k, "id").rows[position] = i
        if x is not None:
            fake.leaf(process, k, "x").rows[position] = x

    return change


def _twice(fake: Fake) -> None:
    for name in ("id", "x"):
        fake.leaf(1, 0, name).rows[1] = fake.leaf(0, 0, name).rows[2]


def _shorten(k: int, *processes: int) -> Callable[[Fake], None]:
    def shorten(fake: Fake) -> None:
        for process in processes:
            for name, column in fake.batch(process, k).leaves.items():
                fake.batch(process, k).leaves[name] = leaf(P2D2, process, column.rows[:2])

    return shorten


def _drop_column(fake: Fake) -> None:
    del fake.batch(1, 0).leaves["x"]


SPLIT_WRONG = (
    Break(
        "row delivered by two",
        _twice,
        {"SPLIT-1", "SPLIT-5"},
        ("process 1, batch 0, row 1: row 2 of the dataset, which process 0, batch 0, row 2 had",),
        SPLIT,
    ),
    Break(
        "row not delivered",
        _row(1, 1, 1, PADDING, PADDING),
        {"SPLIT-1", "SPLIT-5"},
        ("rows [19] of the dataset were not delivered",),
        SPLIT,
    ),
    Break(
        "row that the filter drops",
        _row(1, 1, 3, 122),
        {"SPLIT-1", "SPLIT-5"},
        ("process 1, batch 1, row 3: id 122, which is no row of the dataset",),
        SPLIT,
    ),
    Break(
        "x of another row",
        lambda fake: fake.leaf(0, 1, "x").rows.__setitem__(2, fake.leaf(0, 1, "x").rows[1]),
        {"SPLIT-1", "SPLIT-5"},
        ("process 0, batch 1, row 2: got", "in column 'x' of row 6 of the dataset, expected"),
        SPLIT,
    ),
    Break(
        "padding of a row changed",
        lambda fake: fake.leaf(1, 2, "x").rows.__setitem__(0, 0),
        {"SPLIT-1", "SPLIT-5"},
        ("process 1, batch 2, row 0: got [0. 0. 0.] in column 'x' of a row of padding",),
        SPLIT,
    ),
    Break(
        "column lost", _drop_column, {"SPLIT-1", "SPLIT-5"}, ("process 1, batch 0: columns",), SPLIT
    ),
    Break(
        "columns of 4 and 8 rows",
        lambda fake: fake.batch(1, 0).leaves.update(
            x=leaf(P2D2, 1, np.repeat(fake.leaf(1, 0, "x").rows, 2, axis=0))
        ),
        {"SPLIT-1", "SPLIT-5"},
        ("process 1, batch 0: columns of {'id': 4, 'x': 8} rows",),
        SPLIT,
    ),
    Break(
        "one of a split ends early",
        end_early_on_one,
        set(SPLIT.clauses),
        ("process 0 got 4 batches, then stop; process 1 got 3 batches, then stop",),
        SPLIT,
    ),
    Break(
        "all of a split raise",
        raise_on_all,
        set(SPLIT.clauses) - {"SPLIT-4"},
        ("process 0 got 4 batches, then ValueError: process 1 could not",),
        SPLIT,
    ),
    Break(
        "last batch not padded",
        _shorten(3, 0, 1),
        {"SPLIT-1", "SPLIT-3", "SPLIT-5"},
        ("process 0: batches of [4, 4, 4, 2] rows, expected 4 each",),
        SPLIT,
    ),
    Break(
        "padding although dropped",
        _row(1, 0, 3, PADDING, PADDING),
        {"SPLIT-2"},
        ("process 1, batch 0, row 3: id -7, which is no row of the dataset",),
        SPLIT_DROPPED,
    ),
    Break("a row twice", _twice, {"SPLIT-2"}, ("row 2 of the dataset",), SPLIT_DROPPED),
    Break(
        "last batch larger on one",
        lambda fake: fake.batch(1, 1).leaves.update(
            {n: leaf(P2D2, 1, np.repeat(c.rows, 2, 0)) for n, c in fake.batch(1, 1).leaves.items()}
        ),
        {"SPLIT-3"},
        ("process 1: batches of [4, 4] rows, but process 0 has [4, 2]",),
        SPLIT_EVEN,
    ),
    Break("one drops more", end_early_on_one, {"SPLIT-2"}, ("process 1 got 0 b",), SPLIT_DROPPED),
)
