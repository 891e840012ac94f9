"""What a collate function makes of a batch is what is delivered."""

from collections.abc import Iterator

from conformance.deciding import Decide
from conformance.model import ID, PADDING, Case, Column, Topology, X
from conformance.plan import Planned
from conformance.shards import B, shards


def cases(t: Topology) -> Iterator[Case]:
    """Mappings, one array, and trees; a process without rows makes the same tree."""
    padded = {"batch_size": B, "paddings": PADDING}
    more = (ID, X, Column("y", "int32", values="double_id"))
    pieces = {"even": shards(t, (4, 4)), "odd": shards(t, (3, 4, 1), (5,))}
    for name, given in pieces.items():
        yield Case(
            f"mapping-{name}",
            ("COLLATE-1",),
            given,
            options=padded,
            collate="double",
            delivers=more,
        )
        yield Case(
            f"array-{name}", ("COLLATE-1",), given, options=padded, collate="bare", delivers=(X,)
        )
    cast = padded | {"dtypes": "float32"}
    yield Case(
        "mapping-cast",
        ("COLLATE-1",),
        pieces["even"],
        options=cast,
        collate="double",
        delivers=more,
    )
    for collate in ("nested", "record", "pair"):
        given = shards(t, (4, 3), (3,))
        yield Case(f"{collate}-uneven", ("TREE-1",), given, options=padded, collate=collate)
        if t.processes > 1:
            empty = shards(t, (4, 3), ())
            yield Case(f"{collate}-empty", ("TREE-1",), empty, options=padded, collate=collate)


def test_collate(planned: Planned, decide: Decide) -> None:
    """The arrays of each batch are those that the collate function returned."""
    decide(planned)
