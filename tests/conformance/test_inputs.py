"""What goes into a case, in one line."""

from __future__ import annotations

from conformance.inputs import in_words
from conformance.model import ID, Case, Column, Fault, Shard, Split, Use


def test_options_rows_and_columns_of_each_process_are_named() -> None:
    """Pieces of the same size are counted; columns that differ are named for each process."""
    case = Case(
        "some",
        ("SCHEMA-2",),
        (
            Shard((4, 4, 2), (ID, Column("x", "int32", (3,))), fault=Fault("source", 1)),
            Shard((), (ID,)),
        ),
        options={"batch_size": 4, "paddings": -7},
        use=Use(step=False),
    )

    assert in_words(case) == (
        "batch_size=4, paddings=-7, synchronize_batches=True; "
        "process 0: 10 rows (pieces: 2 of 4, 1 of 2), its source raises at piece 1; "
        "process 1: no rows; "
        "columns of process 0 id int32, x int32 [3]; columns of process 1 id int32; use: step=False"
    )


def test_options_that_differ_stand_with_their_process() -> None:
    """What one process is given beside the others' options is told of that process."""
    shards = (Shard((4,), (ID,)), Shard((4,), (ID,)))
    case = Case("some", ("OPTION-1",), shards, own_options={1: {"batch_size": 2}}, synchronize=None)

    assert in_words(case) == (
        "process 0: 4 rows (pieces: 1 of 4); process 1: 4 rows (pieces: 1 of 4), batch_size=2; "
        "columns id int32"
    )


def test_a_split_is_named_by_its_blocks() -> None:
    """One dataset for all processes is told by its blocks and how they are shared out."""
    case = Case("some", ("SPLIT-1",), split=Split("indices", (5, 5, 1), at=(4,)))

    assert (
        "one dataset of blocks (2 of 5, 1 of 1 rows), shared out by 'indices' at [4]"
        in in_words(case)
    )
