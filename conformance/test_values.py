"""Dtypes and values: nothing changes on the way, or all processes raise."""

from collections.abc import Iterator

import numpy as np

from conformance.deciding import Decide
from conformance.model import ID, PADDING, Case, Column, Topology, Use, X
from conformance.plan import Planned
from conformance.shards import MANY, B, changed, shards

DTYPES = ("float32", "int32", "uint32", "int16", "uint16", "int8", "uint8", "bool", "float16")


def cases(t: Topology) -> Iterator[Case]:
    """Every dtype that JAX holds without x64, casts, and values that do not fit."""
    plain = {"batch_size": B}
    every = tuple(Column(f"c_{d}", d) for d in DTYPES)
    yield Case("kept", ("DTYPE-1", "VALUE-1"), shards(t, (4, 4), columns=every), options=plain)
    ends = tuple(Column(f"c_{d}", d, values="extreme") for d in DTYPES if d != "bool")
    yield Case("extremes", ("VALUE-1",), shards(t, (4, 4), columns=ends), options=plain)
    wide = (ID, Column("i", "int64"), Column("f", "float64", (2,)))
    yield Case("wide-that-fit", ("VALUE-1",), shards(t, (4, 4), columns=wide), options=plain)
    infinite = (ID, Column("v", "float64", values="infinite"))
    yield Case(
        "infinite-narrowed", ("VALUE-1",), shards(t, (4, 4), columns=infinite), options=plain
    )
    yield Case(
        "many-columns",
        ("DTYPE-1", "VALUE-1"),
        shards(t, (4, 2), columns=MANY),
        options=plain | {"paddings": PADDING},
    )
    image = (ID, Column("img", "uint8", (4, 4, 3)), Column("m", "float32", (2, 1)))
    yield Case("images", ("DTYPE-1", "VALUE-1"), shards(t, (4, 4), columns=image), options=plain)
    yield Case(
        "long-rows",
        ("VALUE-1",),
        shards(t, (4, 4), columns=(Column("tokens", "int32", (512,)),)),
        options=plain,
    )
    for dtype in ("float32", "float16", "bfloat16", "int16"):
        options = plain | {"dtypes": dtype}
        columns = (ID,) if dtype == "int16" else (Column("i", "uint8"), Column("j", "int8"))
        yield Case(
            f"one-{dtype}", ("DTYPE-2",), shards(t, (4, 4), columns=columns), options=options
        )
    # Users give dtypes, not names of dtypes.
    yield Case(
        "one-not-by-name",
        ("DTYPE-2",),
        shards(t, (4, 4)),
        options=plain | {"dtypes": np.dtype("float32")},
    )
    yield Case(
        "mapping-not-by-name",
        ("DTYPE-3",),
        shards(t, (4, 4)),
        options=plain | {"dtypes": {"id": np.dtype("int16"), "x": np.dtype("float16")}},
    )
    for dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        columns = (Column("i", "float16"), Column("j", "float16"))
        given = shards(t, (4, 4), columns=columns)
        yield Case(f"ml-{dtype}", ("VALUE-9",), given, options=plain | {"dtypes": dtype})
    mapping = {"id": "int32", "x": "float16", "u8": "int32"}
    mixed = (ID, X, Column("u8", "uint8"))
    yield Case(
        "mapping",
        ("DTYPE-3",),
        shards(t, (4, 4), columns=mixed),
        options=plain | {"dtypes": mapping},
    )
    yield Case(
        "mapping-padded",
        ("DTYPE-3",),
        shards(t, (4, 2), columns=mixed),
        options=plain | {"dtypes": {**mapping, "u8": "float32"}, "paddings": PADDING},
    )
    unknown = {"id": "int32", "x": "float32", "nope": "int8"}
    yield Case(
        "mapping-unknown",
        ("DTYPE-4",),
        shards(t, (4, 4)),
        options=plain | {"dtypes": unknown},
        names=("nope",),
    )
    for values in ("big", "huge"):
        columns = (ID, Column("v", "int64", values=values))
        asked = plain | {"dtypes": {"id": "int32", "v": "float32"}}
        if values == "huge":
            yield Case(
                "int64-to-float32-huge",
                ("VALUE-2",),
                shards(t, (4, 4), columns=columns),
                options=asked,
            )
        yield Case(
            f"int64-{values}",
            ("VALUE-3",),
            shards(t, (4, 4), columns=columns),
            options=plain,
            names=("v",),
        )
    late = (ID, Column("v", "int64", values="big_from_row_5"))
    yield Case(
        "int64-late", ("VALUE-3",), shards(t, (4, 4), columns=late), options=plain, names=("v",)
    )
    # Its largest number is 15.5.
    narrow = shards(t, (4, 4), columns=(ID, Column("v", "uint8", values="from_12")))
    yield Case(
        "int-beyond-float8",
        ("VALUE-3",),
        narrow,
        options=plain | {"dtypes": {"id": "int32", "v": "float8_e3m4"}},
        names=("v",),
    )
    # Arrow has no complex numbers.
    yield Case(
        "complex-to-float",
        ("VALUE-2",),
        shards(t, (4, 4), columns=(ID, Column("v", "complex64"))),
        options=plain | {"dtypes": {"id": "int32", "v": "float32"}},
        kinds=("memory",),
    )
    beyond = (ID, Column("v", "float64", values="beyond_float32"))
    yield Case(
        "float-beyond", ("VALUE-4",), shards(t, (4, 4), columns=beyond), options=plain, names=("v",)
    )
    for values, dtype in {
        "string": "str",
        "object": "object",
        "ragged": "object",
        "date": "datetime64[s]",
    }.items():
        columns = (ID, Column("v", dtype, values=values))
        whole = shards(t, (4, 4), columns=columns)
        yield Case(f"kind-{values}", ("VALUE-5",), whole, options=plain, names=("v",))
        if t.processes > 1 and values != "object":
            one = changed(shards(t, (4, 4), columns=(ID, Column("v"))), -1, columns=columns)
            yield Case(f"kind-{values}-on-one", ("VALUE-6",), one, options=plain)
    uneven = changed(shards(t, (4, 4)), -1, short="x")
    yield Case(
        "columns-uneven", ("VALUE-7",), uneven, options=plain, names=("x",), kinds=("memory",)
    )
    if t.processes > 1:
        fitting = shards(t, (4, 4), columns=(ID, Column("v", "int64")))
        one = changed(fitting, -1, columns=late)
        yield Case("int64-late-on-one", ("VALUE-3",), one, options=plain, names=("v",))
    # Below and above the size from which a copy is made in the background; aligned, and not.
    for name, cells in {"small": 64, "large": 128 * 1024}.items():
        for offset in (0, 16):
            columns = (Column("v", "float32", (cells,)),)
            reused = tuple(
                changed(shards(t, (4, 4, 4), columns=columns), p, reuse=offset)[p]
                for p in range(t.processes)
            )
            held = Use(hold=True)
            if name == "small" or t.processes == 2:
                yield Case(
                    f"reused-{name}-{offset}",
                    ("VALUE-8",),
                    reused,
                    options=plain,
                    use=held,
                    kinds=("memory",),
                )


def test_values(planned: Planned, decide: Decide) -> None:
    """Values and dtypes arrive as the clauses ask, or every process raises."""
    decide(planned)
