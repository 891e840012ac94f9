"""Rows arrive in order, once; shuffled rows arrive once."""

from collections.abc import Iterator

from conformance.deciding import Decide
from conformance.model import PADDING, Case, Topology
from conformance.plan import Planned
from conformance.shards import B, shards


def cases(t: Topology) -> Iterator[Case]:
    """Pieces of all sizes; local shuffles with blocks that make short batches in mid-stream."""
    padded = {"batch_size": B, "paddings": PADDING}
    dropped = {"batch_size": B, "drop_last": True}
    odd = shards(t, (5, 1, 7, 3, 6), (2, 9, 4), at=0)
    yield Case("odd-pieces-padded", ("ORDER-1",), odd, options=padded)
    yield Case("odd-pieces-dropped", ("ORDER-1",), odd, options=dropped)
    yield Case("many-padded", ("ORDER-1",), shards(t, (8,) * 6, (8,) * 5), options=padded)
    shuffled = {"local_shuffle_buffer_size": 8, "local_shuffle_seed": 7, "batch_size": 8}
    for name, pieces in {"blocks-30-10": (30, 10), "one-block": (40,)}.items():
        own = shards(t, pieces)
        for mode, options in {"padded": padded, "dropped": dropped}.items():
            yield Case(
                f"shuffle-{name}-{mode}",
                ("ORDER-2", "ORDER-3"),
                own,
                options={**options, **shuffled},
                kinds=("ray",),
            )


def test_order(planned: Planned, decide: Decide) -> None:
    """Each row arrives exactly once, and in order unless it is shuffled."""
    decide(planned)
