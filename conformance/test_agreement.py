"""Schemas and options that differ between processes are refused on all of them."""

from collections.abc import Iterator
from typing import Any

from conformance.deciding import Decide
from conformance.model import ID, PADDING, Case, Column, Topology, X
from conformance.plan import Planned
from conformance.shards import B, changed, shards

DIFFERENT: dict[str, dict[str, tuple[tuple[Column, ...], str]]] = {
    "SCHEMA-1": {
        "renamed": ((ID, Column("z", "float32", (3,))), "z"),
        "extra": ((ID, X, Column("z")), "z"),
        "lacking": ((ID,), "x"),
    },
    "SCHEMA-2": {
        "float-int": ((ID, Column("x", "int32", (3,))), "x"),
        "width": ((ID, Column("x", "float16", (3,))), "x"),
    },
    "SCHEMA-3": {
        "shape": ((ID, Column("x", "float32", (5,))), "x"),
        "rank": ((ID, Column("x", "float32", (3, 1))), "x"),
    },
}


def cases(t: Topology) -> Iterator[Case]:
    """One process whose columns, dtypes, shapes, tree or options are its own."""
    padded = {"batch_size": B, "paddings": PADDING}
    plain = {"batch_size": B}
    base = shards(t, (4, 4))
    narrow = (ID, Column("x", "float32", (5,)))
    if t.processes == 1:
        return
    whole = changed(shards(t, (4, 4, 4)), -1, later=narrow, later_from=1)
    yield Case("changes-midway", ("SCHEMA-6",), whole, options=plain, kinds=("memory",))
    for clause, variants in DIFFERENT.items():
        for name, (columns, word) in variants.items():
            for at in (0, -1) if name in ("shape", "float-int") else (-1,):
                where = "first" if at == 0 else "last"
                one = changed(base, at, columns=columns)
                case_name = f"{name}-on-{where}"
                yield Case(case_name, (clause, "SCHEMA-5"), one, options=plain, names=(word,))
    padded_one = changed(shards(t, (4, 4), (4,)), -1, columns=narrow)
    yield Case("shape-padded", ("SCHEMA-3",), padded_one, options=padded)
    bare = changed(shards(t, (4, 4), columns=(X,)), -1, bare=True)
    yield Case("bare-on-one", ("SCHEMA-4",), bare, options=plain, kinds=("memory",))
    one_column = shards(t, (4, 4), columns=(X,))
    yield Case(
        "collate-bare-on-one",
        ("SCHEMA-4",),
        one_column,
        options=plain,
        collate="bare_on_last",
        kinds=("ray",),
    )
    own: dict[str, dict[str, dict[str, Any]]] = {
        "OPTION-1": {"batch_size": {"batch_size": 2 * B}},
        "OPTION-2": {"drop_last": {"drop_last": True}, "paddings": {"paddings": PADDING}},
        "OPTION-3": {"dtypes": {"dtypes": {"id": "int32", "x": "float16"}}},
    }
    for clause, differing in own.items():
        for name, options in differing.items():
            differs = shards(t, (4, 4, 4, 4), (4, 4))
            yield Case(
                f"differs-{name}",
                (clause, "OPTION-4"),
                differs,
                options=plain,
                own_options={t.processes - 1: options},
                names=(name,),
            )
    other = {t.processes - 1: {"paddings": PADDING - 1}}
    yield Case(
        "differs-paddings-value",
        ("OPTION-4",),
        base,
        options=padded,
        own_options=other,
        names=("paddings",),
    )
    ahead = {t.processes - 1: {"prefetch_batches": 3}}
    uneven = shards(t, (4, 4, 4), (4, 4))
    yield Case("differs-prefetch", ("OPTION-5",), uneven, options=padded, own_options=ahead)
    seeds = {p: {"local_shuffle_seed": p} for p in range(t.processes)}
    yield Case(
        "differs-seed",
        ("OPTION-5",),
        shards(t, (8, 4), (8,)),
        options=padded | {"local_shuffle_buffer_size": 4},
        own_options=seeds,
        kinds=("ray",),
    )


def test_agreement(planned: Planned, decide: Decide) -> None:
    """What must be the same on all processes is, or all of them raise before it matters."""
    decide(planned)
