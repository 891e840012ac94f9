"""The faked observations of other tests are what real processes record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from conformance.gangs import DEADLINE_S, STALL_S
from conformance.model import Case, Topology
from conformance.observations import SeenEpoch, SeenLeaf, read
from conformance.observe import observe, warm_up
from conformance.subjects import NAMED, Subject
from harness import Gang, Outcome
from tests.conformance.breaks import DELIVERY, FAULT, UNEVEN
from tests.conformance.faking import right

P2D1 = Topology(2, 1)


class Bench:
    """Runs cases on one gang of two processes, which stays warm while it can."""

    def __init__(self, gang: Gang) -> None:
        self._gang = gang

    def outcomes(self, subject: Subject, case: Case) -> list[Outcome]:
        """Run one case in memory."""
        return self._gang.run(
            observe,
            per_rank=[(subject, case, "memory")] * P2D1.processes,
            stall_s=STALL_S["memory"],
            deadline_s=DEADLINE_S,
        )


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """A bench on two processes of one device."""
    with Gang(P2D1.processes, P2D1.devices) as gang:
        gang.prepare(warm_up)
        yield Bench(gang)


@pytest.mark.parametrize("case", [DELIVERY, FAULT, UNEVEN], ids=lambda c: c.name)
def test_fakes_are_what_is_really_recorded(bench: Bench, case: Case) -> None:
    """What the reference records of a case is what the fake of that case says."""
    real = read(bench.outcomes(NAMED["reference"], case))
    faked = read(right(case, P2D1).outcomes())
    for process in range(P2D1.processes):
        got, want = real[process].epochs[0], faked[process].epochs[0]

        assert _told(got) == _told(want)
        assert got.how == want.how
        assert set(got.error) == set(want.error)
        for a, b in zip(got.batches, want.batches, strict=True):
            for x, y in zip(a.moved or [], b.moved or [], strict=True):
                np.testing.assert_array_equal(x, y)


def _told(epoch: SeenEpoch) -> list[tuple[Any, ...]]:
    return [
        ({name: _leaf(leaf) for name, leaf in batch.leaves.items()}, batch.sums)
        for batch in epoch.batches
    ]


def _leaf(leaf: SeenLeaf) -> tuple[Any, ...]:
    """All that is seen of an array, but for the numbers that JAX gives to devices."""
    sharding = {k: v for k, v in (leaf.sharding or {}).items() if k != "mesh"}
    spans = [(first, end) for _, first, end in leaf.devices]
    return (leaf.path, leaf.shape, leaf.dtype, leaf.rows.tolist(), spans, sharding, leaf.kind)
