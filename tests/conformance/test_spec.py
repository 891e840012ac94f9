"""The specification, the cases that decide it, and the reference's signature fit together."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import ray.data

import conformance
from conformance import reference
from conformance.arrival import delivered
from conformance.clauses import Clause, clauses
from conformance.judge import expectations
from conformance.model import Case, Topology
from conformance.mutants.arena import groups
from conformance.trial import columns_of
from tests.conformance.groups import cases_of

TOPOLOGIES = [Topology(p, d) for p in (1, 2, 3, 4) for d in (1, 2)]
each_topology = pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)


@pytest.mark.parametrize("clause", list(clauses().values()), ids=lambda c: c.id)
def test_a_clause_is_one_sentence_with_a_source(clause: Clause) -> None:
    """A clause has MUST or MAY, ends with its only full stop, and says what it rests on."""
    assert re.search(r"\b(MUST|MAY)\b", clause.text)
    assert re.search(r"[^.]\.$", clause.text)
    assert not re.search(r"[.!?]\s", clause.text)
    assert len(clause.source) > len("Ray.")


def test_every_heading_is_a_clause_of_its_own() -> None:
    """No id stands twice, and no heading of a clause is passed over."""
    spec = Path(conformance.__path__[0], "SPEC.md").read_text(encoding="utf-8")
    ids = re.findall(r"^###\s+(\S+)", spec, re.MULTILINE)

    assert [i for i, count in Counter(ids).items() if count > 1] == []
    assert list(clauses()) == ids


def test_extended_clauses_rest_on_this_project_and_core_ones_do_not() -> None:
    """A core clause names Ray or JAX as its source; an extended one names this project."""
    for clause in clauses().values():
        own = "this project" in clause.source

        assert own == (clause.level == "extended"), clause.id


def test_every_clause_has_a_case_on_two_processes() -> None:
    """Two processes of one device are enough to decide something of every clause."""
    named = {clause for _, case in cases_of(Topology(2, 1)) for clause in case.clauses}

    assert set(clauses()) - named == set()


@each_topology
def test_cases_name_only_clauses_that_there_are(topology: Topology) -> None:
    """Every case names at least one clause, each once, and no other than those of SPEC.md."""
    for group, case in cases_of(topology):
        assert case.clauses, (group, case.name)
        assert len(set(case.clauses)) == len(case.clauses), (group, case.name)
        assert set(case.clauses) <= set(clauses()), (group, case.name)


@each_topology
def test_names_of_cases_are_unique_in_a_group(topology: Topology) -> None:
    """A name selects one case of its group, so that a report's command re-runs just that one."""
    for group, cases in groups().items():
        names = Counter(case.name for case in cases(topology))

        assert [name for name, count in names.items() if count > 1] == [], group


@each_topology
def test_cases_have_what_they_need(topology: Topology) -> None:
    """A case has a shard a process, or a split that only Ray can read, and a kind of source."""
    for group, case in cases_of(topology):
        assert case.kinds, (group, case.name)
        if case.split is None:
            assert len(case.shards) == topology.processes, (group, case.name)
        else:
            assert case.kinds == ("ray",), (group, case.name)
            assert case.shards == (), (group, case.name)


@each_topology
def test_cases_that_ask_for_words_expect_an_error(topology: Topology) -> None:
    """Words that an error must hold are looked for only where an error is due."""
    for group, case in cases_of(topology):
        if case.names:
            endings = {e for x in expectations(case, topology).values() for e in x.endings}

            assert "error" in endings, (group, case.name)


@each_topology
def test_padding_is_no_value_of_a_row(topology: Topology) -> None:
    """Where a case pads, no value of any process's rows in that column equals its padding.

    A bool has no third value for it; its rows are told by the other columns.
    """
    for group, case in cases_of(topology):
        if case.split is not None:
            continue
        for expectation in expectations(case, topology).values():
            if any(part.padding for parts in expectation.parts for part in parts):
                assert _collisions(case) == [], (group, case.name)


def _collisions(case: Case) -> list[str]:
    found = []
    for process, shard in enumerate(case.shards):
        for column in columns_of(case, process) if shard.rows else ():
            rows = range(shard.rows)
            both = delivered(column, process, rows, 1, case.options_of(process))
            if column.dtype != "bool" and bool(np.isin(both[-1], both[:-1]).any()):
                found.append(f"process {process}, column {column.name}")
    return found


@each_topology
def test_rows_are_told_apart(topology: Topology) -> None:
    """Where rows are told by their id, no two rows of any processes have the same."""
    for group, case in cases_of(topology):
        seen: Counter[int] = Counter()
        for process, shard in enumerate(case.shards):
            for column in shard.columns:
                if column.name == "id":
                    ids = delivered(column, process, range(shard.rows), 0, {})
                    seen.update(ids.tolist())

        assert [i for i, count in seen.items() if count > 1] == [], (group, case.name)


def test_the_reference_takes_every_argument_of_rays_method() -> None:
    """Names, kinds and defaults of the reference's arguments are those of Ray's method."""
    theirs = dict(inspect.signature(ray.data.DataIterator.iter_jax_batches).parameters)
    ours = dict(inspect.signature(reference.iter_jax_batches).parameters)
    del theirs["self"], ours["source"]

    assert {n: (p.kind, p.default) for n, p in ours.items()} == {
        n: (p.kind, p.default) for n, p in theirs.items()
    }
