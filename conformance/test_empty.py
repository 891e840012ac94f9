"""Shards without rows: on one process, on all but one, on all."""

from collections.abc import Iterator

from conformance.deciding import Decide
from conformance.model import PADDING, Case, Topology
from conformance.plan import Planned
from conformance.shards import B, shards


def cases(t: Topology) -> Iterator[Case]:
    """Shards of no piece, and of pieces without rows."""
    padded = {"batch_size": B, "paddings": PADDING}
    dropped = {"batch_size": B, "drop_last": True}
    neither = {"batch_size": B}
    for name, options in {"padded": padded, "dropped": dropped, "neither": neither}.items():
        yield Case(f"all-empty-{name}", ("EMPTY-3", "EMPTY-6"), shards(t, ()), options=options)
        yield Case(f"all-no-rows-{name}", ("EMPTY-3",), shards(t, (0,)), options=options)
    if t.processes == 1:
        return
    for at in (0, -1):
        where = "first" if at == 0 else "last"
        one = shards(t, (4, 4), (), at=at)
        yield Case(f"empty-{where}-padded", ("EMPTY-1", "EMPTY-2"), one, options=padded)
        yield Case(f"empty-{where}-dropped", ("EMPTY-4",), one, options=dropped)
        yield Case(f"empty-{where}-neither", ("EMPTY-5",), one, options=neither)
    no_rows = shards(t, (4, 3), (0,))
    yield Case("no-rows-padded", ("EMPTY-1", "EMPTY-2"), no_rows, options=padded)
    if t.processes > 2:
        only = shards(t, (), (4, 4), at=1)
        yield Case("all-but-one-padded", ("EMPTY-1", "EMPTY-2"), only, options=padded)
        yield Case("all-but-one-neither", ("EMPTY-5",), only, options=neither)
    cast = padded | {"dtypes": {"id": "int32", "x": "float16"}}
    yield Case("empty-cast-padded", ("EMPTY-2",), shards(t, (4, 4), ()), options=cast)


def test_empty(planned: Planned, decide: Decide) -> None:
    """An empty shard ends its process as it ends the others."""
    decide(planned)
