"""Padding: its values, its place, and values that do not fit."""

from collections.abc import Iterator
from typing import Any

from conformance.deciding import Decide
from conformance.model import ID, PADDING, Case, Column, Topology, X
from conformance.plan import Planned
from conformance.shards import MANY, B, shards

U8 = Column("u8", "uint8")
FLAG = Column("flag", "bool")


def cases(t: Topology) -> Iterator[Case]:
    """Tails on all processes, on one, and a whole batch more on one."""
    one = {"batch_size": B, "paddings": PADDING}
    several = (ID, X, U8, FLAG)
    mapping = {"id": -1, "x": -2.5, "u8": 255, "flag": True}
    each = {"batch_size": B, "paddings": mapping}
    yield Case("value-tail", ("PAD-1", "PAD-3"), shards(t, (4, 1)), options=one)
    yield Case(
        "value-float", ("PAD-1",), shards(t, (4, 3), columns=(X,)), options=one | {"paddings": 0.5}
    )
    # What a test of truth takes for no padding at all.
    yield Case("value-zero", ("PAD-1",), shards(t, (4, 1)), options=one | {"paddings": 0})
    zeros = one | {"paddings": {"id": 0, "x": 0.0, "u8": 0, "flag": False}}
    yield Case("mapping-zero", ("PAD-2",), shards(t, (4, 1), columns=several), options=zeros)
    yield Case(
        "value-image",
        ("PAD-1",),
        shards(t, (3,), columns=(ID, Column("img", "int32", (2, 3)))),
        options=one,
    )
    yield Case("mapping-tail", ("PAD-2",), shards(t, (4, 1), columns=several), options=each)
    yield Case("value-cast", ("PAD-1",), shards(t, (4, 1)), options=one | {"dtypes": "float32"})
    # Short by the same on all, so that an iterator without agreement is asked no more than this.
    unfit = {
        "negative-unsigned": (U8, -1),
        "negative-float-unsigned": (U8, -1.0),
        "fraction-integer": (ID, 0.5),
        "too-large": (Column("i8", "int8"), 300),
    }
    for name, (column, value) in unfit.items():
        options: dict[str, Any] = {"batch_size": B, "paddings": value}
        tails = shards(t, (4, 2), columns=(column,))
        yield Case(f"unfit-{name}", ("PAD-5",), tails, options=options)
        if t.processes > 1:
            odd = shards(t, (4, 4), (4, 2), columns=(column,))
            yield Case(f"unfit-{name}-on-one", ("PAD-5",), odd, options=options)
    wrong = {"lacks": ("x", {"id": -1}), "extra": ("other", {"id": -1, "x": -1, "other": 0})}
    for name, (word, paddings) in wrong.items():
        options = {"batch_size": B, "paddings": paddings}
        yield Case(f"mapping-{name}", ("PAD-6",), shards(t, (4, 2)), options=options, names=(word,))
    masked = one | {"mask_column": "real"}
    yield Case("mask-tail", ("MASK-1",), shards(t, (4, 1)), options=masked)
    many = shards(t, (4, 4), columns=MANY)
    unpadded = {"batch_size": B, "mask_column": "real"}
    yield Case("mask-many-columns", ("MASK-1",), many, options=unpadded)
    dropped = {"batch_size": B, "drop_last": True, "mask_column": "real"}
    yield Case("mask-dropped", ("MASK-1",), shards(t, (4, 4, 1)), options=dropped)
    if t.processes == 1:
        return
    yield Case("mask-uneven", ("MASK-1",), shards(t, (4, 4), (3,)), options=masked)
    yield Case("mask-empty", ("MASK-1",), shards(t, (4, 2), ()), options=masked)
    yield Case("value-tail-on-one", ("PAD-1", "PAD-3"), shards(t, (4, 4), (4, 1)), options=one)
    yield Case("value-batch-on-one", ("PAD-1", "PAD-3"), shards(t, (4, 4), (4,)), options=one)
    yield Case(
        "mapping-batch-on-one", ("PAD-2",), shards(t, (4, 4), (3,), columns=several), options=each
    )
    yield Case("no-batch-of-padding", ("PAD-4",), shards(t, (4, 4), (4, 4, 4)), options=one)
    lacking = {"batch_size": B, "paddings": {"id": -1}}
    yield Case(
        "mapping-lacks-on-one", ("PAD-6",), shards(t, (4, 4), (4, 2)), options=lacking, names=("x",)
    )


def test_padding(planned: Planned, decide: Decide) -> None:
    """Rows of padding hold what was asked for, where they belong, or all processes raise."""
    decide(planned)
