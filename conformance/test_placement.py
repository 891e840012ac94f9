"""Where rows lie: global shape, sharding, devices."""

from collections.abc import Iterator

from conformance.deciding import Decide
from conformance.model import ID, PADDING, Case, Column, Topology, Use, X
from conformance.plan import Planned
from conformance.shards import B, shards

PLACE = ("PLACE-1", "PLACE-2", "PLACE-3")


def cases(t: Topology) -> Iterator[Case]:
    """Scalars, vectors and images; even, and padded on one process."""
    padded = {"batch_size": B, "paddings": PADDING}
    image = (ID, Column("img", "int32", (2, 3)), Column("t", "float32", (1, 2, 2)))
    yield Case("even", PLACE, shards(t, (4, 4)), options={"batch_size": B})
    yield Case("tail", PLACE, shards(t, (4, 1)), options=padded)
    yield Case("trailing", PLACE, shards(t, (4, 4), columns=image), options=padded)
    yield Case("large-batch", PLACE, shards(t, (16, 16), columns=(ID,)), options={"batch_size": 16})
    moving = Use(move=True)
    yield Case("moved", ("PLACE-4",), shards(t, (4, 4)), options={"batch_size": B}, use=moving)
    yield Case("moved-tail", ("PLACE-4",), shards(t, (4, 2)), options=padded, use=moving)
    uneven = shards(t, (4, 4), (3,), columns=(ID, X))
    for name, clause in {"data_model": "SHARD-1", "two_axes": "SHARD-2"}.items():
        yield Case(
            f"{name}-even", (clause,), shards(t, (4, 4)), options={"batch_size": B}, sharding=name
        )
        yield Case(f"{name}-uneven", (clause,), uneven, options=padded, sharding=name)
    ones = shards(t, (1, 2))
    yield Case(
        "data_model-ones", ("SHARD-1",), ones, options={"batch_size": 1}, sharding="data_model"
    )
    same = shards(t, (4, 3))
    yield Case(
        "replicated-same", ("SHARD-3",), same, options=padded, sharding="replicated", same_rows=True
    )
    if t.processes > 1:
        yield Case("replicated-other", ("SHARD-4",), same, options=padded, sharding="replicated")
    if t.processes > 1:
        uneven = shards(t, (4, 4), (3,), columns=(ID, X))
        yield Case("uneven", PLACE, uneven, options=padded)
        yield Case("moved-uneven", ("PLACE-4",), uneven, options=padded, use=moving)


def test_placement(planned: Planned, decide: Decide) -> None:
    """A process's devices hold its own rows, and the global array is the same for all."""
    decide(planned)
