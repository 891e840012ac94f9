"""Wrong iterators that only Ray's own datasets show are caught, each by its clause."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.kill_matrix import run
from conformance.mutants.arena import Arena
from conformance.mutants.model import Mutant
from conformance.mutants.tables import NAMED

# Ray 2.60 warns of its own use of what it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")

# Its clause has many cases that pass first, each with fresh processes after it: over a minute.
# `python -m conformance.kill_matrix --written` runs it, and ERROR-2 has it alone.
SLOW = {"failed-map-ends-the-shard"}


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    """Two warm actors on one cluster."""
    with Arena() as made:
        yield made


@pytest.mark.parametrize(
    "mutant",
    [m for m in NAMED.values() if m.kind == "ray" and m.name not in SLOW],
    ids=lambda m: m.name,
)
def test_a_mutant_is_caught_on_ray_datasets(arena: Arena, mutant: Mutant) -> None:
    """Some case of the clause that it names does not pass, and says why."""
    fate = run(arena, mutant)

    assert mutant.clause in fate.killed, f"{mutant.clause} passed all of its {fate.cases} cases"
