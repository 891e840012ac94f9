"""What processes must see, worked out by hand: measured cases, and publicly reported ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.model import ID, PADDING, Case, Column, Fault, Shard, X
from conformance.oracle import Expectation, expect_case

PAD = {"paddings": PADDING}
DROP = {"drop_last": True}
MODES: dict[str, dict[str, Any]] = {"padded": PAD, "dropped": DROP, "neither": {}}
U8 = (ID, Column("u8", "uint8"))
#: In the tables below, a batch of one process: real rows, or real rows and rows of padding.
Size = int | tuple[int, int]


@dataclass(frozen=True)
class Row:
    """One line of a table: what the processes read, and what they must see.

    ``sizes`` has one tuple of batches a process; with ``ending`` other than stop, the most that
    each may get.
    """

    name: str
    shards: tuple[tuple[int, ...] | Shard, ...]
    options: Mapping[str, Any]
    sizes: tuple[tuple[Size, ...], ...]
    ending: str = "stop"
    value_error: bool = False
    batch_size: int = 4
    devices: int = 2
    fields: Mapping[str, Any] = field(default_factory=dict)

    def answer(self) -> Expectation:
        """What the oracle says."""
        shards = tuple(s if isinstance(s, Shard) else Shard(s) for s in self.shards)
        options = {"batch_size": self.batch_size, **self.options}
        return expect_case(
            Case(self.name, (), shards, options=options, **self.fields), self.devices
        )


#: Two processes of two devices, as measured on Ray: the right answer to each.
MEASURED = (
    Row(
        "skew of two, padded",
        ((4, 4, 2), (4,)),
        PAD,
        ((4, 4, (2, 2)), (4, (0, 4), (0, 4))),
    ),
    Row("none on one, padded", ((4, 4), ()), PAD, ((4, 4), ((0, 4), (0, 4)))),
    *(
        Row(
            f"raises at the second, {name}",
            ((4, 4, 4), Shard((4, 4, 4), fault=Fault("source", 1))),
            options,
            ((4,), (4,)),
            "error",
        )
        for name, options in MODES.items()
    ),
    Row(
        "-1 in uint8",
        (Shard((4, 4), U8), Shard((4, 2), U8)),
        {"paddings": -1},
        ((4,), (4,)),
        "error",
    ),
    Row(
        "trailing shapes 3 and 5",
        ((4, 4), Shard((4, 4), (ID, replace(X, trailing=(5,))))),
        {},
        ((), ()),
        "error",
        value_error=True,
    ),
    Row(
        "float32 and int32",
        ((4, 4), Shard((4, 4), (ID, replace(X, dtype="int32")))),
        PAD,
        ((), ()),
        "error",
        value_error=True,
    ),
    Row("a piece of no rows, padded", ((4, 4), (4, 0)), PAD, ((4, 4), (4, (0, 4)))),
    Row("no step of padding only", ((4, 0), (4, 0)), PAD, ((4,), (4,))),
    Row("dropped", ((4, 4, 4), (4, 4)), DROP, ((4, 4), (4, 4))),
    Row("neither", ((4, 4, 4), (4, 4)), {}, ((4, 4), (4, 4)), "error", value_error=True),
    Row("short in mid-stream, dropped", ((4, 4, 4), (4, 2, 4)), DROP, ((4, 4), (4, 4))),
    Row("none on one, dropped", ((4, 4), ()), DROP, ((), ())),
    Row(
        "default",
        ((4, 4, 4), (4, 4)),
        {},
        ((4, 4), (4, 4)),
        "error",
        value_error=True,
        fields={"synchronize": None},
    ),
    *(
        Row(
            f"{name} arrives as no number",
            (Shard((4, 4), (ID, Column("v", "int64", values=values))),) * 2,
            options,
            ((), ()),
            "error",
        )
        for name, values, options in (
            ("2**31", "big", {}),
            ("2**40", "huge", {}),
            ("2**40 in float16", "huge", {"dtypes": {"id": "int32", "v": "float16"}}),
            ("string", "string", {}),
            ("object", "object", {}),
            ("ragged", "ragged", {}),
            ("date", "date", {}),
        )
    ),
    Row(
        "2**40 in float32",
        (Shard((4, 4), (ID, Column("v", "int64", values="huge"))),) * 2,
        {"dtypes": {"id": "int32", "v": "float32"}},
        ((4, 4), (4, 4)),
    ),
    Row(
        "2**31 from row 5 on one",
        (
            Shard((4, 4), (ID, Column("v", "int64"))),
            Shard((4, 4), (ID, Column("v", "int64", values="big_from_row_5"))),
        ),
        {},
        ((4,), (4,)),
        "error",
    ),
    *(
        Row(f"{value} in {dtype}", (Shard((4, 2), (Column("v", dtype),)),) * 2, {"paddings": value},
            ((4,), (4,)), "error")
        for value, dtype in (
            (-1.0, "uint8"), (0.5, "int32"), (300, "int8"), (2, "bool"), (1e6, "float16"),
            (math.nan, "int32"), (math.inf, "uint8"),
        )
    ),
    *(
        Row(f"{value} fits {dtype}", (Shard((4, 2), (Column("v", dtype),)),) * 2,
            {"paddings": value}, ((4, (2, 2)), (4, (2, 2))))
        for value, dtype in (
            (255.0, "uint8"), (-128, "int8"), (True, "bool"), (0.5, "bfloat16"),
            (math.inf, "float16"), (math.nan, "float32"),
        )
    ),
    Row(
        "columns of 4 and 3 rows",
        ((4, 4), Shard((4, 4), short="x")),
        {},
        ((), ()),
        "error",
    ),
    Row("name missing in dtypes", ((4,), (4,)), {"dtypes": {"id": "int32"}}, ((), ()), "error"),
    Row(
        "name missing in paddings, where one pads",
        ((4, 4), (4, 2)),
        {"paddings": {"id": 0}},
        ((), ()),
        "error",
    ),
    Row(
        "name too many in dtypes",
        ((4,), (4,)),
        {"dtypes": {"id": "int32", "x": "float32", "y": "int8"}},
        ((), ()),
        "error",
    ),
)  # fmt: skip

#: Publicly reported causes that are a matter of counting.
REPORTED = (
    Row(
        "pytorch#38174",
        ((49,), (49,), (47,)),
        DROP,
        ((16, 16), (16, 16), (16, 16)),
        batch_size=16,
    ),
    Row(
        "ray#66085",
        ((30, 10), (40,)),
        PAD | {"local_shuffle_buffer_size": 8},
        ((8,) * 5,) * 2,
        batch_size=8,
    ),
    Row("datasets#6623 padded", ((3,), (2,)), PAD, ((2, (1, 1)), (2, (0, 2))), batch_size=2),
    Row("datasets#6623 dropped", ((3,), (2,)), DROP, ((2,), (2,)), batch_size=2),
    Row(
        "datasets#6623 neither",
        ((3,), (2,)),
        {},
        ((2,), (2,)),
        "error",
        value_error=True,
        batch_size=2,
        devices=1,
    ),
    Row("flax#264", ((10,),), PAD, ((4, 4, (2, 2)),)),
    Row(
        "accelerate#961 padded",
        ((5,),) * 4 + ((4,),),
        PAD,
        ((1,) * 5,) * 4 + ((1, 1, 1, 1, (0, 1)),),
        batch_size=1,
        devices=1,
    ),
    Row(
        "accelerate#961 dropped",
        ((5,),) * 4 + ((4,),),
        DROP,
        ((1,) * 4,) * 5,
        batch_size=1,
        devices=1,
    ),
    Row("ray#42601", ((4, 4), (4, 1)), {}, ((4,), (4,)), "error", value_error=True),
    Row(
        "marin#6954",
        tuple(
            Shard((4, 4, 4), fault=Fault("source", {4: 2, 5: 1}[p])) if p in (4, 5) else (4, 4, 4)
            for p in range(8)
        ),
        PAD,
        ((4,),) * 8,
        "error",
    ),
    Row("keras#21167", ((4, 1), (4, 1)), {}, ((4,), (4,)), "error", value_error=True),
    Row("keras#21167 on one device", ((4, 1), (4, 1)), {}, ((4, 1), (4, 1)), devices=1),
    Row("keras#21167 padded", ((4, 1), (4, 1)), PAD, ((4, (1, 3)), (4, (1, 3)))),
    Row("datasets#7113", ((100,),), DROP, ((),), batch_size=101, devices=1),
    Row("datasets#7113 on two", ((50,), (50,)), DROP, ((), ()), batch_size=101, devices=1),
    Row("ray#19644", ((8,), ()), PAD, ((4, 4), ((0, 4), (0, 4)))),
)

#: What neither table has: batch sizes, synchronisation off, and faults beyond the end.
FURTHER = (
    *(
        Row(
            f"batch size {size}",
            ((4,), (4,)),
            PAD,
            ((), ()),
            "error",
            value_error=True,
            batch_size=size,
        )
        for size in (0, -4, 3)
    ),
    Row(
        "batch size 3 and a fault",
        ((4,), Shard((4,), fault=Fault("source", 0))),
        PAD,
        ((), ()),
        "error",
        value_error=True,
        batch_size=3,
    ),
    Row("even tail", ((4, 2), (4, 2)), {}, ((4, 2), (4, 2))),
    Row("all empty", ((), ()), {}, ((), ())),
    Row("both options", ((4, 4, 4), (4, 2)), PAD | DROP, ((4,), (4,))),
    Row(
        "off, padded",
        ((4, 3), (4, 4, 1)),
        PAD,
        ((4, (3, 1)), (4, 4, (1, 3))),
        fields={"synchronize": False},
    ),
    Row("off, dropped", ((4, 3), (4, 4, 1)), DROP, ((4,), (4, 4)), fields={"synchronize": False}),
    Row("off, neither", ((4, 2), ()), {}, ((4, 2), ()), fields={"synchronize": False}),
    Row(
        "schema changes in the middle",
        ((4, 4, 4), Shard((4, 4, 4), later=(ID,), later_from=1)),
        PAD,
        ((4,), (4,)),
        "error",
        value_error=True,
    ),
    Row(
        "fault after the last row",
        ((4, 4), Shard((4, 4), fault=Fault("source", 2))),
        PAD,
        ((4, 4), (4, 4)),
        "error",
    ),
    Row(
        "fault in what is dropped",
        ((4, 4), Shard((4, 4, 4), fault=Fault("source", 2))),
        DROP,
        ((4, 4), (4, 4)),
        "stop or error",
    ),
    Row(
        "fault of the shortest, which never ends",
        ((4, 4, 4), Shard((4, 4), fault=Fault("source", 2))),
        DROP,
        ((4, 4), (4, 4)),
        "error",
    ),
    Row(
        "value in what is dropped",
        (
            Shard((4, 4), (ID, Column("x", "int64"))),
            Shard((4, 3), (ID, Column("x", "int64", values="big_from_row_5"))),
        ),
        DROP | {"dtypes": {"id": "int32", "x": "int32"}},
        ((4,), (4,)),
        "stop or error",
    ),
    Row(
        "bare on the last alone",
        ((4, 4), (4, 4)),
        {},
        ((), ()),
        "error",
        value_error=True,
        fields={"collate": "bare_on_last"},
    ),
    *(
        Row(
            f"{name} differs",
            ((4, 4), (4, 4)),
            {},
            ((), ()),
            "error",
            value_error=True,
            fields={"own_options": {1: own}},
        )
        for name, own in {
            "batch_size": {"batch_size": 8},
            "drop_last": DROP,
            "paddings": PAD,
            "dtypes": {"dtypes": "float32"},
        }.items()
    ),
    Row(
        "prefetch differs",
        ((4, 4), (4, 4)),
        {},
        ((4, 4), (4, 4)),
        fields={"own_options": {1: {"prefetch_batches": 3}}},
    ),
)
