"""Batches hold exactly the rows that were asked for."""

from collections.abc import Iterator

from conformance.deciding import Decide
from conformance.model import PADDING, Case, Topology
from conformance.plan import Planned
from conformance.shards import B, shards


def cases(t: Topology) -> Iterator[Case]:
    """Sizes of pieces that are, and are not, the size of a batch."""
    padded = {"batch_size": B, "paddings": PADDING}
    dropped = {"batch_size": B, "drop_last": True}
    for name, pieces in {
        "exact": (4, 4),
        "short-first": (2, 4, 2),
        "short-middle": (4, 2, 4),
        "long": (10, 2),
        "ones": (1,) * 8,
        "one-long": (12,),
        "tail": (3, 3, 3),
    }.items():
        yield Case(f"pieces-{name}-padded", ("SIZE-1",), shards(t, pieces), options=padded)
        yield Case(f"pieces-{name}-dropped", ("SIZE-1",), shards(t, pieces), options=dropped)
    if t.processes > 1:
        uneven = shards(t, (4, 4, 4), (4, 2, 4))
        yield Case("pieces-short-middle-on-one", ("SIZE-1",), uneven, options=dropped)
        yield Case("pieces-differ", ("SIZE-1",), shards(t, (1, 7), (3, 5), at=0), options=padded)
    # Without `batch_size` it is Ray's 256.
    yield Case("size-default", ("SIZE-1",), shards(t, (300,)), options={"paddings": PADDING})
    for size in (0, -B, *([t.devices + 1] if t.devices > 1 else [])):
        name = f"batch-size-{'minus-' if size < 0 else ''}{abs(size)}"
        yield Case(name, ("SIZE-2",), shards(t, (4,)), options={"batch_size": size})
    for name, pieces in {"last": (4, 0), "middle": (4, 0, 4), "first": (0, 4)}.items():
        if t.processes > 1:
            one = shards(t, (4,) if name != "middle" else (4, 4), pieces)
            yield Case(f"no-rows-{name}-on-one", ("SIZE-3", "PAD-4"), one, options=padded)
        yield Case(f"no-rows-{name}", ("SIZE-3", "PAD-4"), shards(t, pieces), options=padded)
    for tail in (2, 1):
        yield Case(f"tail-{tail}", ("SIZE-4",), shards(t, (4, tail)), options={"batch_size": B})


def test_size(planned: Planned, decide: Decide) -> None:
    """The batches of each case have the sizes that its clauses ask for."""
    decide(planned)
