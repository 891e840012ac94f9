"""When cases of a clause are not run any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.deciding import ENOUGH_HANGS, Decider, results_of
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


@pytest.mark.parametrize("kind", [Hung, Undecided])
def test_enough_cases_that_do_not_end_are_enough(kind: Any) -> None:
    """Whether they hang, or are busy up to the deadline, which costs even more."""
    gangs: Any = _Endless(kind(rank=0, stacks="", why="rank 0 does not end"))
    decider = Decider(find("reference"), gangs)
    verdicts = []
    for _ in range(ENOUGH_HANGS + 1):
        item: Any = SimpleNamespace(user_properties=[], nodeid="a case")
        with pytest.raises((pytest.fail.Exception, pytest.skip.Exception)):
            decider.decide(PLANNED, item)
        verdicts += [result.verdict for result in results_of(item.user_properties)]

    assert "not run" not in verdicts[:-1]
    assert verdicts[-1] == "not run"
