"""Real Ray datasets, split in every way that Ray has."""

from collections.abc import Iterator, Mapping

from conformance.deciding import Decide
from conformance.model import PADDING, Case, Split, Topology
from conformance.plan import Planned
from conformance.shards import B


def cases(t: Topology) -> Iterator[Case]:
    """Even and uneven splits of datasets of several blocks."""
    n = t.processes
    blocks = (7, 9, 4, 6, 3)
    total = sum(blocks)
    uneven = tuple(3 + 2 * p for p in range(n - 1))
    cuts = {"indices": tuple(sum(uneven[: p + 1]) for p in range(n - 1))}
    even = tuple(total * (p + 1) // n for p in range(n - 1))
    bounds = (0, *even, total)
    # Process p loses p rows of its own share, so that even shares become uneven.
    dropped = tuple(tuple(range(bounds[p], bounds[p] + min(2 * p, 5))) for p in range(n))
    splits = {
        "indices": Split("indices", blocks, cuts["indices"]),
        "split": Split("split", blocks),
        "streaming": Split("streaming", blocks),
        "streaming-equal": Split("streaming_equal", (8 * n, 4 * n)),
        "filter": Split("filter", blocks, even, dropped),
    }
    for name, split in splits.items():
        padded = {"batch_size": B, "paddings": PADDING}
        equal = name == "streaming-equal"
        clauses = ("SPLIT-1", "SPLIT-3") if equal else ("SPLIT-1",)
        yield _case(f"{name}-padded", clauses, split, padded)
        yield _case(f"{name}-dropped", ("SPLIT-2",), split, {"batch_size": B, "drop_last": True})
    neither = {"batch_size": B}
    yield _case("streaming-equal-neither", ("SPLIT-3",), splits["streaming-equal"], neither)
    if n > 1:
        few = (1,) * (n - 1)
        padded = {"batch_size": B, "paddings": PADDING}
        yield _case("fewer-rows-split", ("SPLIT-4", "SPLIT-5"), Split("split", few), padded)
        cut = tuple(min(p + 1, n - 1) for p in range(n - 1))
        yield _case(
            "fewer-rows-indices", ("SPLIT-4", "SPLIT-5"), Split("indices", few, cut), padded
        )


def _case(name: str, clauses: tuple[str, ...], split: Split, options: Mapping[str, object]) -> Case:
    return Case(name, clauses, split=split, options=options, kinds=("ray",))


def test_split(planned: Planned, decide: Decide) -> None:
    """Over all processes, the rows of a dataset arrive as its clauses ask."""
    decide(planned)
