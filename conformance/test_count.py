"""All processes yield the same number of batches, or stop with the same error."""

from collections.abc import Iterator

from conformance.deciding import Decide
from conformance.model import PADDING, Case, Topology
from conformance.plan import Planned
from conformance.shards import B, shards, stairs


def cases(t: Topology) -> Iterator[Case]:
    """Skews of no, one, two and more batches, on the first process and on the last."""
    modes = {
        "COUNT-2": ("dropped", {"batch_size": B, "drop_last": True}),
        "COUNT-3": ("padded", {"batch_size": B, "paddings": PADDING}),
        "COUNT-4": ("neither", {"batch_size": B}),
    }
    for name, options in modes.values():
        yield Case(f"even-{name}", ("COUNT-1",), shards(t, (4, 4, 4)), options=options)
        long = shards(t, (4,) * 12)
        yield Case(f"even-long-{name}", ("COUNT-1",), long, options=options)
    yield Case("tail-dropped", ("COUNT-2",), shards(t, (4, 4, 3)), options=modes["COUNT-2"][1])
    yield Case("tail-padded", ("COUNT-3",), shards(t, (4, 4, 3)), options=modes["COUNT-3"][1])
    dropped = {"batch_size": B, "drop_last": True}
    both = dropped | {"paddings": PADDING}
    yield Case("both-tail", ("COUNT-7",), shards(t, (4, 4, 3)), options=both)
    yield Case("larger-batch", ("COUNT-2",), shards(t, (3, 2)), options=dropped | {"batch_size": 8})
    if t.processes == 1:
        return
    for clause, (name, options) in modes.items():
        for skew in (1, 2, 5):
            for at in (0, -1):
                where = "first" if at == 0 else "last"
                more = shards(t, (4,), (4,) * (1 + skew), at=at)
                yield Case(f"skew-{skew}-{where}-{name}", (clause,), more, options=options)
        less = shards(t, (4, 4, 4), (4,))
        yield Case(f"one-short-{name}", (clause,), less, options=options)
        if t.processes > 2:
            yield Case(f"stairs-{name}", (clause,), stairs(t), options=options)
        # The skew beyond the look-ahead, within it, and at its edge.
        for ahead in (0, 2, 3, 10):
            for skew in (2, 5):
                case = shards(t, (4, 4), (4, 4) + (4,) * skew, at=0)
                own = options | {"prefetch_batches": ahead}
                yield Case(f"ahead-{ahead}-skew-{skew}-{name}", ("COUNT-6",), case, options=own)
    # The rows of pytorch#38174 and datasets#7113: enough for 3, 3 and 2 full batches; and for none.
    yield Case(
        "ahead-3-tails-padded",
        ("COUNT-6",),
        shards(t, (4, 4, 2), (4,)),
        options=modes["COUNT-3"][1] | {"prefetch_batches": 3},
    )
    yield Case(
        "full-batches-differ", ("COUNT-2",), shards(t, (4, 4, 4), (4, 4, 3)), options=dropped
    )
    yield Case(
        "tails-differ-padded", ("COUNT-3",), shards(t, (4, 4), (4, 1)), options=modes["COUNT-3"][1]
    )
    yield Case(
        "tails-differ-neither", ("COUNT-5",), shards(t, (4, 4), (4, 2)), options={"batch_size": B}
    )
    yield Case(
        "first-differs-neither",
        ("COUNT-5",),
        shards(t, (2,), (4,), at=0),
        options={"batch_size": B},
    )
    yield Case("both-skew", ("COUNT-7",), shards(t, (4, 4, 4), (4, 2)), options=both)


def test_count(planned: Planned, decide: Decide) -> None:
    """The processes of each case end after the numbers of batches that its clauses ask for."""
    decide(planned)
