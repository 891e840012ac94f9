"""Errors of sources, transformations and collate functions reach every process."""

from collections.abc import Iterator

from conformance.deciding import Decide
from conformance.model import PADDING, Case, Fault, Topology
from conformance.plan import Planned
from conformance.shards import B, changed, shards

TEXT = "row 17 is damaged"


def cases(t: Topology) -> Iterator[Case]:
    """A failure at the first, a middle and the last piece, on one process and on all."""
    padded = {"batch_size": B, "paddings": PADDING}
    dropped = {"batch_size": B, "drop_last": True}
    neither = {"batch_size": B}
    base = shards(t, (4, 4, 4))
    places = {"first": 0, "middle": 1, "last": 2}
    for where, at in places.items():
        for process in (0, -1) if t.processes > 1 else (0,):
            who = f"{where}-on-{'first' if process == 0 else 'last'}"
            number = process % t.processes
            one = changed(base, process, fault=Fault("source", at, TEXT))
            names = (f"process {number}", TEXT)
            yield Case(
                f"source-{who}",
                ("ERROR-1", "ERROR-4"),
                one,
                options=padded,
                names=names,
                kinds=("memory",),
            )
            yield Case(
                f"map-{who}",
                ("ERROR-1", "ERROR-2", "ERROR-4"),
                one,
                options=padded,
                names=names,
                kinds=("ray",),
            )
            bad = changed(base, process, fault=Fault("collate", at, TEXT))
            yield Case(f"collate-{who}", ("ERROR-3",), bad, options=padded, collate="fail")
    for mode, options in {"dropped": dropped, "neither": neither}.items():
        one = changed(base, -1, fault=Fault("source", 1, TEXT))
        yield Case(f"source-middle-{mode}", ("ERROR-1",), one, options=options, kinds=("memory",))
        yield Case(f"map-middle-{mode}", ("ERROR-2",), one, options=options, kinds=("ray",))
    at_end = changed(base, -1, fault=Fault("source", 3, TEXT))
    yield Case("source-after-last", ("ERROR-1",), at_end, options=padded, kinds=("memory",))
    everywhere = base
    for process in range(t.processes):
        everywhere = changed(everywhere, process, fault=Fault("source", 1, TEXT))
    yield Case("source-on-all", ("ERROR-5",), everywhere, options=padded)


def test_error(planned: Planned, decide: Decide) -> None:
    """An error on one process becomes an error on all, after the same number of batches."""
    decide(planned)
