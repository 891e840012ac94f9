"""Verdicts against what is known: states, words and exit status."""

from __future__ import annotations

import pytest

from ci.compare import Status, compare
from ci.known import Known
from conformance.clauses import clauses
from tests.ci.samples import entry, planned, record, result


@pytest.mark.parametrize(
    ("verdict", "known", "state", "status"),
    [
        ("pass", None, "pass", 0),
        ("fail", None, "unexpected failure", 1),
        ("hang", None, "unexpected failure", 1),
        ("crash", None, "unexpected failure", 1),
        ("undecided", None, "undecided", 3),
        ("fail", "fail", "known", 0),
        ("pass", "fail", "unexpected pass", 1),
        ("hang", "fail", "other kind", 1),
        ("crash", "hang", "other kind", 1),
        ("undecided", "hang", "undecided", 3),
        ("hang", ("hang", "pass"), "known", 0),
        ("pass", ("hang", "pass"), "pass", 0),
    ],
)
def test_a_verdict_beside_what_is_known(
    verdict: str, known: object, state: str, status: int
) -> None:
    """Each verdict has its state, and the state its exit status."""
    entries = [] if known is None else [entry(outcome=known)]  # type: ignore[arg-type]
    found = record([result(verdict)], entries).comparison

    assert [i.state for i in found.items] == [state]
    assert found.status == status


@pytest.mark.parametrize(
    ("verdict", "known", "words"),
    [
        (
            "fail",
            [],
            "unexpected failure: COUNT-3, case skew on p2d1 (memory): fail: skew was fail",
        ),
        ("pass", ["hang"], "unexpected pass: COUNT-3, case skew on p2d1 (memory) passes, but is"),
        ("fail", ["hang"], "fails otherwise than known: COUNT-3, case skew on p2d1 (memory): fail"),
    ],
)
def test_what_is_not_as_expected_is_said_in_words(
    verdict: str, known: list[str], words: str
) -> None:
    """The words name clause, case, topology, what was seen and what was known."""
    found = record([result(verdict)], [entry(outcome=k) for k in known]).comparison

    assert found.words[0].startswith(words)


def test_an_entry_that_matches_nothing_fails_the_gate() -> None:
    """An entry for a case that there is not is as wrong as a failure."""
    found = record([result("pass")], [entry(cases=["gone-*"])]).comparison

    assert found.status is Status.NOT_AS_EXPECTED
    assert found.words == ["an entry matches nothing: COUNT-3 fail, cases gone-* (it is so)"]


def test_an_entry_for_other_topologies_is_not_stale() -> None:
    """What a run does not look at says nothing of an entry."""
    elsewhere = [entry(processes=">=3"), entry("COUNT-2", sources="ray")]

    assert record([result("pass")], elsewhere).comparison.status is Status.AS_EXPECTED


def test_an_entry_for_a_case_that_was_not_chosen_is_not_stale() -> None:
    """A short run takes few cases; an entry for another is not held against it."""
    chosen, other = planned("skew"), planned("other")
    known = Known((entry(cases=["other"]),))
    found = compare([result("pass")], known, everything=[chosen, other], chosen=[chosen])

    assert found.status is Status.AS_EXPECTED


def test_a_lacking_argument_is_known_or_open() -> None:
    """Without an entry it leaves its clause undecided; with one it is as expected."""
    lacks = result("not run", why="lacks", words="the subject has no argument mask_column")

    assert record([lacks, result("pass", "COUNT-2")]).comparison.status is Status.UNDECIDED
    known = record([lacks], [entry(outcome="lacks")]).comparison
    assert known.status is Status.AS_EXPECTED


def test_what_a_case_says_on_several_clauses_and_topologies_is_said_once() -> None:
    """One sentence names them all; a case whose verdict is another there has one of its own."""
    alike = [
        result("fail", clause, processes=processes, words=f"{processes} left")
        for processes in (4, 2)
        for clause in ("COUNT-3", "COUNT-4")
    ]
    found = record([*alike, result("hang", "COUNT-3", processes=3, words="stuck")]).comparison

    assert len(found.unexpected) == 5
    assert found.words == [
        "unexpected failure: COUNT-3, COUNT-4, case skew on p2d1, p4d1 (memory): fail: 2 left",
        "unexpected failure: COUNT-3, case skew on p3d1 (memory): hang: stuck",
    ]


def test_cases_that_lack_the_same_argument_are_told_together() -> None:
    """One sentence for each set of arguments names the clauses, each once."""
    lacks = [
        result("not run", clause, why="lacks", words=f"the subject has no argument {argument}")
        for clause, argument in (("PAD-1", "a"), ("PAD-2", "a"), ("PAD-1", "a"), ("MASK-1", "a, b"))
    ]

    assert record(lacks).comparison.words == [
        "undecided: the subject has no argument a: cases of PAD-1, PAD-2",
        "undecided: the subject has no argument a, b: cases of MASK-1",
    ]


def test_a_clause_none_of_whose_cases_ran_is_undecided() -> None:
    """What a budget leaves out wholly keeps the gate from saying that all is as expected."""
    left = result("not run", "COUNT-2", why="budget", words="left out")
    chosen = [planned(), planned(clauses=("COUNT-2",)), planned("third", ("COUNT-4",))]
    found = record([result("pass"), left], chosen=chosen).comparison

    assert found.status is Status.UNDECIDED
    assert found.open_clauses == ["COUNT-2", "COUNT-4"]
    assert "not decided: COUNT-2: none of its cases ran" in found.words


def test_many_clauses_that_were_not_decided_are_counted() -> None:
    """A run that was stopped early says in one line how many clauses it did not come to."""
    ids = list(clauses())[:20]
    found = record([], chosen=[planned(clauses=(one,)) for one in ids], partial="x").comparison
    (words,) = [w for w in found.words if w.startswith("not decided")]

    assert words == f"not decided: {', '.join(ids[:8])} and 12 more: none of their cases ran"


def test_a_case_left_out_of_a_decided_clause_is_named_only() -> None:
    """A clause that another case decided is decided; the case left out is listed."""
    left = result("not run", case="other", why="budget", words="left out")
    chosen = [planned(), planned("other")]
    found = record([result("pass"), left], chosen=chosen).comparison

    assert found.status is Status.AS_EXPECTED
    assert found.left_out == ["other-p2d1-memory"]


@pytest.mark.parametrize(
    ("verdicts", "partial", "lost", "status"),
    [
        ([], "the suite was ended by SIGKILL", {}, Status.COULD_NOT_RUN),
        ([], "", {"a": "no gang"}, Status.COULD_NOT_RUN),
        (["pass"], "the gate was stopped by SIGTERM", {}, Status.UNDECIDED),
        (["pass"], "", {"a": "no gang"}, Status.UNDECIDED),
        (["fail"], "the gate was stopped by SIGTERM", {}, Status.NOT_AS_EXPECTED),
    ],
)
def test_a_run_that_is_not_whole(
    verdicts: list[str], partial: str, lost: dict[str, str], status: Status
) -> None:
    """Nothing seen: it could not run. Something as expected: undecided. A failure stays one."""
    found = record([result(v) for v in verdicts], partial=partial, lost=lost).comparison

    assert found.status is status
