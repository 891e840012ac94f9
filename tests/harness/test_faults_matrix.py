"""Every fault on real ranks: its own outcome, its own verdict, and nothing left.

Once each here. Many times in a row, under load: `python -m tests.harness.faults_matrix --help`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness import Gang
from tests.harness import cases
from tests.harness.conftest import START_TIMEOUT_S
from tests.harness.faults_matrix import CASES, Case, check, nothing_left, run
from tests.harness.places import place

# On Ray those that take another way there: a signal, a death, a connection.
ON_RAY = ("stop", "kill", "cut")


@pytest.fixture(scope="module")
def local() -> Iterator[Gang]:
    """Two processes, of which nothing may be left."""
    env: dict[str, str] = {}
    with nothing_left(env), Gang(processes=2, env=env) as gang:
        yield gang


@pytest.fixture(scope="module")
def actors() -> Iterator[Gang]:
    """Two actors, of which nothing may be left, on the cluster neither."""
    env: dict[str, str] = {}
    with (
        place("ray") as where,
        nothing_left(env),
        Gang(processes=2, backend=where, env=env, start_timeout_s=START_TIMEOUT_S) as gang,
    ):
        yield gang


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_fault_has_its_verdict(local: Gang, case: Case) -> None:
    """Outcomes, word, ranks at fault and batch are those of the fault."""
    found, _ = run(local, case, stall_s=1.5)

    check(case, found)


@pytest.mark.parametrize("name", ON_RAY)
def test_each_fault_has_its_verdict_on_ray(actors: Gang, name: str) -> None:
    """An actor with a fault is judged as a local process is."""
    case = next(case for case in CASES if case.name == name)
    actors.run(cases.give)  # a fresh start has tasks of Ray's own, which count as progress
    found, _ = run(actors, case, stall_s=3.0)

    check(case, found)
