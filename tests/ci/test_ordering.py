"""Which cases run, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ci.costs import PRIOR_S, Costs, kind_of
from ci.known import Known
from ci.ordering import choose
from conformance.model import Shard
from tests.ci.samples import entry, planned

NOTHING = Known()


def test_one_case_of_each_clause_comes_first() -> None:
    """A run that is cut short has seen as many clauses as it could, on the smallest topology."""
    cases = [
        planned(name, (clause,), processes=p)
        for p in (4, 2, 1)
        for clause, names in {"COUNT-2": ("a", "b"), "COUNT-3": ("c", "d")}.items()
        for name in names
    ]
    order = [(p.case.name, p.topology.processes) for p in choose(cases, NOTHING).planned]

    assert order[:2] == [("a", 2), ("c", 2)]
    assert [p for _, p in order[2:]] == [2] * 2 + [4] * 4 + [1] * 4


def test_clauses_that_failed_before_come_next() -> None:
    """After one case of each clause come all cases of those that failed in the run before."""
    cases = [planned(n, (c,)) for c in ("COUNT-2", "COUNT-3") for n in (c + "-a", c + "-b")]
    order = [p.case.name for p in choose(cases, NOTHING, failed={"COUNT-3"}).planned]

    assert order == ["COUNT-2-a", "COUNT-3-a", "COUNT-3-b", "COUNT-2-b"]


def test_a_short_profile_takes_one_case_of_each_clause_on_each_topology() -> None:
    """Every clause is looked at on every topology, by as few cases as may be."""
    cases = [planned(n, ("COUNT-2",), processes=p) for p in (2, 4) for n in ("a", "b")]
    chosen = choose(cases, NOTHING, one_a_clause=True).planned

    assert [(p.case.name, p.topology.processes) for p in chosen] == [("a", 2), ("a", 4)]


def test_cases_in_turns_run_on_one_topology_each() -> None:
    """From such a source each case runs once, and topologies have equally many."""
    cases = [
        planned(n, ("COUNT-2",), processes=p, kind=kind)
        for kind in ("memory", "ray")
        for p in (2, 4)
        for n in ("a", "b", "c", "d")
    ]
    chosen = choose(cases, NOTHING, in_turns=["ray"]).planned

    on_ray = [(p.case.name, p.topology.processes) for p in chosen if p.kind == "ray"]
    assert sorted(name for name, _ in on_ray) == ["a", "b", "c", "d"]
    assert sorted(processes for _, processes in on_ray) == [2, 2, 4, 4]
    assert len([p for p in chosen if p.kind == "memory"]) == 8


def test_one_known_hang_of_a_clause_is_run_and_the_others_are_spared() -> None:
    """A hang takes long to be sure of; cases known to end otherwise run all."""
    cases = [planned(n) for n in ("hangs-1", "hangs-2", "ends")]
    known = Known((entry(outcome="hang", cases=["hangs-*"]),))
    choice = choose(cases, known)

    assert [p.case.name for p in choice.planned] == ["ends", "hangs-1"]
    assert [p.case.name for p in choice.spared] == ["hangs-2"]
    assert choose(cases, known, every_hang=True).spared == []


def test_the_most_telling_case_of_a_clause_comes_first() -> None:
    """Of cases on one topology, that with uneven shards and pieces says more than an even one."""
    even, uneven = planned("even"), planned("uneven")
    shards = (Shard((4, 3)), Shard((4,)))
    uneven = replace(uneven, case=replace(uneven.case, shards=shards))

    assert [p.case.name for p in choose([even, uneven], NOTHING).planned] == ["uneven", "even"]


def test_a_case_that_can_pass_is_not_spared() -> None:
    """Only a case all of whose clauses hang, as known, tells nothing new."""
    cases = [planned("hangs-1"), planned("hangs-2", ("COUNT-3", "COUNT-2"))]
    known = Known((entry(outcome="hang"),))

    assert choose(cases, known).spared == []


def test_costs_are_learnt_by_kind_of_case() -> None:
    """What is left is told from what cases of that kind took, and before that from priors."""
    plain, fresh = planned("a"), planned("b", leave=True)
    costs = Costs({p.key: kind_of(p, NOTHING) for p in (plain, fresh)})
    before_s = costs.left_s([plain.key])

    for _ in range(100):
        costs.saw(plain.key, 5.0)

    assert before_s == pytest.approx(PRIOR_S[("memory", "plain")])
    assert 4.8 < costs.of(plain.key) < 5.0
    assert costs.of(fresh.key) == PRIOR_S[("memory", "fresh")]
