"""Cases of which a right observation is made, and what it is to break one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from conformance.model import ID, PADDING, Case, Column, Fault, Shard, Split, Topology, Use
from tests.conformance.faking import Fake, right, right_split

P2D2 = Topology(2, 2)

#: Uneven shards, read to their end: 10 and 5 rows, in batches of 4 with padding.
DELIVERY = Case(
    "delivery",
    (
        *("SIZE-1", "SIZE-3", "COUNT-1", "COUNT-3", "COUNT-6", "EMPTY-1", "EMPTY-2"),
        *("PAD-1", "PAD-3", "PAD-4", "PLACE-1", "PLACE-2", "PLACE-3", "PLACE-4"),
        *("DTYPE-1", "VALUE-1", "ORDER-1", "ORDER-2", "ORDER-3", "SCHEMA-1", "OPTION-5"),
        *("LEAVE-3", "TWO-1", "SYNC-2"),
    ),
    (Shard((4, 4, 2)), Shard((4, 1))),
    options={"batch_size": 4, "paddings": PADDING},
    use=Use(move=True),
)


#: Process 1 fails while it reads its second batch.
FAULT = Case(
    "fault",
    ("ERROR-1", "ERROR-4", "EMPTY-1"),
    (Shard((4, 4, 4)), Shard((4, 4, 4), fault=Fault("source", 1, "row 17 is damaged"))),
    options={"batch_size": 4, "paddings": PADDING},
    names=("process 1", "row 17 is damaged"),
)

#: Process 1 calls a column by another name.
MISMATCH = Case(
    "mismatch",
    ("SCHEMA-1", "SCHEMA-5", "OPTION-1", "EMPTY-1"),
    (Shard((4, 4)), Shard((4, 4), (ID, Column("z", "float32", (3,))))),
    options={"batch_size": 4},
    names=("z",),
)

#: 3 and 2 batches, and nothing that says what to do about it.
UNEVEN = Case(
    "uneven",
    ("COUNT-4", "COUNT-5", "EMPTY-1"),
    (Shard((4, 4, 4)), Shard((4, 4))),
    options={"batch_size": 4},
)

#: Process 1 leaves its loop after two batches.
LONE = Case(
    "lone",
    ("LEAVE-2",),
    (Shard((4,) * 120),) * 2,
    options={"batch_size": 4, "paddings": PADDING},
    use=Use(leave={1: 2}, step=False),
    names=("process 1",),
)


SHUFFLED = Case(
    "shuffled",
    ("ORDER-2", "ORDER-3", "OPTION-5"),
    (Shard((4, 4, 1)),) * 2,
    options={"batch_size": 4, "paddings": PADDING, "local_shuffle_buffer_size": 4},
)


#: 20 rows, of which process 1 does not read row 14; read as 13 and 6.
SPLIT = Case(
    "split",
    ("SPLIT-1", "SPLIT-3", "SPLIT-4", "SPLIT-5"),
    split=Split("filter", (7, 9, 4), (13,), ((), (14,))),
    options={"batch_size": 4, "paddings": PADDING},
)
SPLIT_DROPPED = replace(SPLIT, clauses=("SPLIT-2",), options={"batch_size": 4, "drop_last": True})
#: 6 rows each: batches of 4 and 2.
SPLIT_EVEN = Case(
    "even", ("SPLIT-3",), split=Split("streaming_equal", (12,)), options={"batch_size": 4}
)
SHARES = {
    SPLIT.name: [list(range(13)), [13, *range(15, 20)]],
    SPLIT_EVEN.name: [list(range(0, 12, 2)), list(range(1, 12, 2))],
}


@dataclass(frozen=True)
class Break:
    """One thing made wrong in a right observation, and all that must fail for it.

    ``words`` are in what is said of each clause that fails.
    """

    name: str
    do: Callable[[Fake], None]
    fails: set[str]
    words: tuple[str, ...] = ()
    case: Case = DELIVERY


def right_of(case: Case) -> Fake:
    """What all processes see when a case of this module is answered rightly."""
    return right_split(case, P2D2, SHARES[case.name]) if case.split else right(case, P2D2)
