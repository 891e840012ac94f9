"""When cases of a clause are not run any more."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.deciding import ENOUGH_HANGS, Budget, Decider, results_of
from conformance.model import Case, Topology
from conformance.plan import Planned
from conformance.shards import shards
from conformance.subjects import find
from harness import Hung, Outcome, Undecided

ONE = Topology(1, 1)
PLANNED = Planned(
    Case("even", ("COUNT-2",), shards(ONE, (4,)), options={"batch_size": 4}), ONE, "memory"
)


class _Endless:
    """Gangs on which nothing ends."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def run(self, *_: object) -> list[Outcome]:
        return [self._outcome]


def _item() -> Any:
    return SimpleNamespace(user_properties=[], nodeid="a case", stash=pytest.Stash())


@pytest.mark.parametrize("kind", [Hung, Undecided])
def test_enough_cases_that_do_not_end_are_enough(kind: Any) -> None:
    """Whether they hang, or are busy up to the deadline, which costs even more."""
    gangs: Any = _Endless(kind(rank=0, stacks="", why="rank 0 does not end"))
    decider = Decider(find("reference"), gangs)
    verdicts = []
    for _ in range(ENOUGH_HANGS + 1):
        item = _item()
        with pytest.raises((pytest.fail.Exception, pytest.skip.Exception)):
            decider.decide(PLANNED, item)
        verdicts += [result.verdict for result in results_of(item.user_properties)]

    assert "not run" not in verdicts[:-1]
    assert verdicts[-1] == "not run"


@pytest.mark.parametrize(
    ("cost_s", "verdict", "why"), [(100.0, "not run", "budget"), (0.0, "hang", "")]
)
def test_a_case_that_would_end_too_late_is_left_out(cost_s: float, verdict: str, why: str) -> None:
    """A case runs only if, by its cost, it ends within the budget; otherwise the reason is kept."""
    gangs: Any = _Endless(Hung(rank=0, stacks="", why="rank 0 does not end"))
    budget = Budget(time.monotonic() + 50, {PLANNED.key: cost_s})
    item = _item()
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception)):
        Decider(find("reference"), gangs, budget).decide(PLANNED, item)
    (found,) = results_of(item.user_properties)

    assert (found.verdict, found.why) == (verdict, why)
