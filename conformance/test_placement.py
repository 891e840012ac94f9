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
    if t.processes > 1:
        uneven = shards(t, (4, 4), (3,), columns=(ID, X))
        yield Case("uneven", PLACE, uneven, options=padded)
        yield Case("moved-uneven", ("PLACE-4",), uneven, options=padded, use=moving)


def test_placement(planned: Planned, decide: Decide) -> None:
    """A process's devices hold its own rows, and the global array is the same for all."""
    decide(planned)
