"""Faults in what only this project promises: trees, masks, shardings, the ledger, lost peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.model import PADDING, Case, Shard, Use
from tests.conformance.breaks import P2D2, Break
from tests.conformance.faking import Fake, leaf

PADDED = {"batch_size": 4, "paddings": PADDING}
UNEVEN_SHARDS = (Shard((4, 4)), Shard((4, 2)))

TREE = Case("tree", ("TREE-1",), UNEVEN_SHARDS, options=PADDED, collate="nested")
MASK = Case("mask", ("MASK-1",), UNEVEN_SHARDS, options=PADDED | {"mask_column": "real"})
LEDGER = Case("ledger", ("LEDGER-1",), UNEVEN_SHARDS, options={"batch_size": 4, "drop_last": True})
EMPTY = Case("empty", ("EMPTY-3", "EMPTY-6"), (Shard(()),) * 2, options=PADDED)
#: The rows of a process are on each of its devices.
MODEL = Case("model", ("SHARD-1",), UNEVEN_SHARDS, options=PADDED, sharding="data_model")
#: Both processes hold the rows of process 0, half of them on each device.
COPIED = Case(
    "copied",
    ("SHARD-3",),
    (Shard((4, 3)),) * 2,
    options=PADDED,
    sharding="replicated",
    same_rows=True,
)
OTHERS = replace(COPIED, name="others", clauses=("SHARD-4",), same_rows=False)
CROSSED = Case(
    "crossed",
    ("TWO-2", "TWO-3"),
    UNEVEN_SHARDS,
    options=PADDED,
    use=Use(style="crossed", named=True, step=False),
)
ABSENT = Case(
    "absent", ("PEER-1",), UNEVEN_SHARDS, options=PADDED, use=Use(absent=(1,), step=False)
)
KILLED = Case(
    "killed", ("PEER-2",), UNEVEN_SHARDS, options=PADDED, use=Use(lost={1: "SIGKILL"}, step=False)
)
STOPPED = replace(
    KILLED, name="stopped", clauses=("PEER-3",), use=Use(lost={1: "SIGSTOP"}, step=False)
)


def _mask(process: int, k: int, *real: int) -> Callable[[Fake], None]:
    def change(fake: Fake) -> None:
        fake.leaf(process, k, "real").rows[:] = np.isin(np.arange(4), real)

    return change


def _mask_as_numbers(fake: Fake) -> None:
    column = fake.leaf(0, 0, "real")
    column.rows, column.dtype = column.rows.astype(np.uint8), "uint8"


def _drop_mask(fake: Fake) -> None:
    del fake.batch(1, 0).leaves["real"]


def _other_cell(fake: Fake) -> None:
    fake.leaf(0, 0, "x").rows[0, 0] = 0.5


def _other_tree(fake: Fake) -> None:
    fake.batch(1, 1).tree = "PyTreeDef((*, *))"


def _count(**changes: int) -> Callable[[Fake], None]:
    return lambda fake: fake.processes[1].stats[0].update(changes)


def _no_ledger(fake: Fake) -> None:
    fake.processes[0].stats.clear()


def _row_of_a_peer(fake: Fake) -> None:
    fake.epoch(0, 1).batches[1].leaves["x"].rows[0] = 0.5


def _raise_in_the_other(fake: Fake) -> None:
    for process in (0, 1):
        fake.epoch(process, 1).fail("crossed")


def _end_early(*, epoch: int) -> Callable[[Fake], None]:
    def end(fake: Fake) -> None:
        for process in (0, 1):
            fake.epoch(process, epoch).batches.pop()

    return end


def _differ_on_a_device(fake: Fake) -> None:
    """The second device of process 0 holds other values in the same rows."""
    batch = fake.batch(0, 0)
    batch.raw = [batch.leaves[name].fields(name) for name in sorted(batch.leaves)]
    batch.raw[1]["shards"][1]["data"] = batch.raw[1]["shards"][1]["data"] + 1


def _differ_on_a_process(fake: Fake) -> None:
    fake.leaf(1, 1, "x").rows[0] += 1


def _hold_rows_twice(fake: Fake) -> None:
    """Each process's rows are a part of their own of the global array."""
    for process in (0, 1):
        for name, column in fake.batch(process, 0).leaves.items():
            fake.batch(process, 0).leaves[name] = leaf(P2D2, process, column.rows)


def _leave_rows_out(fake: Fake) -> None:
    """No device holds the rows of process 1."""
    fake.leaf(1, 0, "x").devices = [(2, 0, 4), (3, 0, 4)]
    fake.leaf(1, 0, "x").rows[:] = fake.leaf(0, 0, "x").rows


def _stop(process: int) -> Callable[[Fake], None]:
    def stop(fake: Fake) -> None:
        fake.epoch(process).how, fake.epoch(process).error = "stop", {}

    return stop


PROMISES_WRONG = (
    Break(
        "another tree",
        _other_tree,
        {"TREE-1"},
        ("process 1, batch 1: tree PyTreeDef((*, *)), but the first batch of process 0 has",),
        TREE,
    ),
    Break(
        "value in a tree",
        lambda fake: fake.leaf(0, 1, "['a']['x']").rows.__setitem__((1, 2), 0.5),
        {"TREE-1"},
        ("process 0, batch 1, column 'x', value at row (1, 2): got 0.5, expected",),
        TREE,
    ),
    Break(
        "row that is not its own beside the mask",
        _other_cell,
        {"MASK-1"},
        ("process 0, batch 0, column 'x', value at row (0, 0): got 0.5",),
        MASK,
    ),
    Break(
        "mask true on padding",
        _mask(1, 1, 0, 1, 2),
        {"MASK-1"},
        (
            "process 1, batch 1, column 'real': got [True, True, True, False]",
            "expected [True, True, False, False]",
        ),
        MASK,
    ),
    Break("mask false on a row", _mask(0, 0, 0, 1), {"MASK-1"}, ("process 0, batch 0",), MASK),
    Break(
        "mask of numbers",
        _mask_as_numbers,
        {"MASK-1"},
        ("process 0, batch 0: no bool column 'real' but ['id', 'real', 'x']",),
        MASK,
    ),
    Break("no mask", _drop_mask, {"MASK-1"}, ("process 1, batch 0: no bool column 'real'",), MASK),
    Break(
        "row not accounted for",
        _count(rows_dropped=1),
        {"LEDGER-1"},
        ("process 1: 6 rows read, but {'delivered': 4, 'dropped': 1",),
        LEDGER,
    ),
    Break(
        "more delivered than came",
        _count(rows_delivered=6, rows_dropped=0),
        {"LEDGER-1"},
        ("process 1: 6 rows delivered by the ledger, 4 came",),
        LEDGER,
    ),
    Break(
        "no ledger",
        _no_ledger,
        {"LEDGER-1"},
        ("process 0: 1 epochs ran, but there is no stats()",),
        LEDGER,
    ),
    Break(
        "no warning",
        lambda fake: fake.processes[0].logs.clear(),
        {"EMPTY-6"},
        ("no process warned that there was nothing to deliver",),
        EMPTY,
    ),
    Break(
        "two warnings",
        lambda fake: fake.processes[1].logs.extend(["no rows", "none"]),
        {"EMPTY-6"},
        ("process 1 warned 2 times, once is due: ['no rows', 'none']",),
        EMPTY,
    ),
    Break(
        "copies differ on devices",
        _differ_on_a_device,
        {"SHARD-1"},
        ("process 0, batch 0, column 'x': jax.Array whose copies differ",),
        MODEL,
    ),
    Break(
        "copies differ on processes",
        _differ_on_a_process,
        {"SHARD-3"},
        ("process 1, batch 1, column 'x', row 0: copies differ",),
        COPIED,
    ),
    Break(
        "rows not replicated",
        _hold_rows_twice,
        {"SHARD-3"},
        ("process 0, batch 0, column 'id': shape (8,), expected (4,)",),
        COPIED,
    ),
    Break(
        "rows on no device",
        _leave_rows_out,
        {"SHARD-1"},
        ("batch 0, column 'x': devices hold rows [0, 1, 2, 3], expected each of 8 rows",),
        MODEL,
    ),
    Break(
        "other rows accepted",
        _stop(0),
        {"SHARD-4"},
        ("process 0: 1 batches, then stop, not an error",),
        OTHERS,
    ),
    Break(
        "row of the other iterator",
        _row_of_a_peer,
        {"TWO-2", "TWO-3"},
        ("epoch 1, process 0, batch 1, column 'x', value at row (0, 0): got 0.5",),
        CROSSED,
    ),
    Break(
        "the other iterator ends early",
        _end_early(epoch=1),
        {"TWO-2", "TWO-3"},
        ("epoch 1: process 0 should get 2 batches",),
        CROSSED,
    ),
    Break(
        "crossed, one raises",
        lambda fake: fake.epoch(0, 1).fail("crossed"),
        {"TWO-2", "TWO-3"},
        ("ValueError: crossed",),
        CROSSED,
    ),
    Break(
        "crossed, all raise",
        _raise_in_the_other,
        {"TWO-2"},
        ("epoch 1: process 0 should end with stop",),
        CROSSED,
    ),
    *(
        Break(
            f"{case.name}, {name}",
            change,
            set(case.clauses),
            (words,),
            case,
        )
        for case in (ABSENT, KILLED, STOPPED)
        for name, change, words in (
            ("a clean stop", _stop(0), "process 0: 2 batches, then stop, expected an error"),
            (
                "not named",
                lambda fake: fake.epoch(0).fail("process 10 was lost"),
                "process 0: the error does not name 'process 1': ValueError: process 10 was lost",
            ),
        )
    ),
)
