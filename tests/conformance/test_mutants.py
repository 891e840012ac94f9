"""Wrong iterators are caught, each by the clause that names it; edits find their places again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from conformance.clauses import clauses
from conformance.kill_matrix import run, survivors
from conformance.mutants import subject_of
from conformance.mutants.arena import Arena
from conformance.mutants.edits import AnchorError, TextEdit, functions, mechanical_edits
from conformance.mutants.loading import edited
from conformance.mutants.model import Mutant
from conformance.mutants.operators import OPERATORS
from conformance.mutants.tables import NAMED, find, sample
from conformance.subjects import SubjectError

#: Each takes a time-out or a hang of seconds; the command `python -m conformance.kill_matrix` runs
#: them with the others.
SLOW = {"silent-process-not-named", "time-out-ends-the-epoch"}
QUICK = sorted(
    (m for m in NAMED.values() if m.kind == "memory" and m.name not in SLOW),
    key=lambda m: m.devices,
)
TEXT = """
def f(a, b: int = 1):
    if a < b and not a:
        return max(a, 2)
    raise ValueError(f"{a + b}")


def g(a):
    total = a == 1
    return total
"""


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    """Two warm processes."""
    with Arena() as made:
        yield made


@pytest.mark.parametrize("mutant", QUICK, ids=lambda m: m.name)
def test_a_mutant_is_caught_by_the_clause_that_it_names(arena: Arena, mutant: Mutant) -> None:
    """Some case of the clause does not pass, and says why; nothing is left undecided."""
    fate = run(arena, mutant)

    assert mutant.clause in fate.killed, f"{mutant.clause} passed all of its {fate.cases} cases"
    kind, _, words = fate.killed[mutant.clause]
    assert kind in ("fail", "hang")
    assert words


def test_every_clause_has_a_mutant_that_names_it() -> None:
    """No clause is without a mutant, and no mutant names what is no clause."""
    assert {m.clause for m in NAMED.values()} == set(clauses())


def test_half_of_all_mutants_were_not_made_to_be_found() -> None:
    """Mechanical edits and copies of public reports are at least half of all."""
    sampled = len(list(sample()))
    copies = sum(bool(m.origin) for m in NAMED.values())

    assert 2 * (sampled + copies) >= sampled + len(NAMED)


@pytest.mark.parametrize("mutant", [*NAMED.values(), *sample()], ids=lambda m: m.name)
def test_an_edit_fits_the_code_of_today(mutant: Mutant) -> None:
    """Its anchors are there once each, and what they leave is Python."""
    for text in edited(mutant.edits).values():
        ast.parse(text)


def test_an_edit_whose_anchor_is_gone_says_so() -> None:
    """The error names module, function, the text that is not there, and what to do."""
    edit = TextEdit("conformance.reference", "pad", "no such text", "x")

    with pytest.raises(AnchorError, match=r"reference, pad: 'no such text' is there 0 times.*anew"):
        edit.apply("def pad():\n    pass\n")


@pytest.mark.parametrize("name", ["nobody", "jaxiter/agreement/decide/bound-moved/99"])
def test_a_mutant_that_is_not_there_is_no_subject(name: str) -> None:
    """A name without an edit is refused where subjects are loaded, in words that name it."""
    with pytest.raises(AnchorError, match=name):
        find(name)


def test_a_mutant_is_a_subject() -> None:
    """It loads beside the code as it is, which stays as it is."""
    wrong = subject_of("names-of-dtypes-not-checked").load()
    import jaxiter

    assert wrong.__module__ != jaxiter.iter_jax_batches.__module__
    assert wrong.__name__ == "iter_jax_batches"
    assert subject_of("pad-first").load().__name__ == "iter_jax_batches"


def test_subjects_refuse_unknown_mutants() -> None:
    """The suite says of a mutant that is not there what it says of any such subject."""
    from conformance.subjects import find as find_subject

    with pytest.raises(SubjectError, match="no mutant 'nobody'"):
        find_subject("conformance.mutants:nobody").load()


def test_operators_edit_what_decides_and_nothing_else() -> None:
    """Comparisons, connectives, calls and constants of bodies; no words, defaults, annotations."""
    found = [(e.function, e.operator, s.new) for e, s in mechanical_edits("m", TEXT)]

    assert found == [
        ("f", "branch-dropped", "False"),
        ("f", "connective-swapped", "(a < b or not a)"),
        ("f", "comparison-turned", "(a >= b)"),
        ("f", "bound-moved", "(a <= b)"),
        ("f", "not-dropped", "(a)"),
        ("f", "extreme-swapped", "min"),
        ("f", "constant-changed", "3"),
        ("g", "comparison-turned", "(a != 1)"),
        ("g", "constant-changed", "2"),
    ]
    assert {operator for _, operator, _ in found} <= set(OPERATORS)


def test_an_edit_keeps_its_name_when_other_functions_change() -> None:
    """A name has no line number: lines put before a function change none of its edits' names."""
    before = {e.name: s.new for e, s in mechanical_edits("m", TEXT) if e.function == "g"}
    longer = TEXT.replace("    if a < b", "    b = b == 5\n    if a < b")
    after = {e.name: s.new for e, s in mechanical_edits("m", longer) if e.function == "g"}

    assert before == after


def test_functions_are_found_with_their_classes() -> None:
    """Methods and inner functions have qualified names."""
    tree = ast.parse("class A:\n    def f(self):\n        def g(): pass\n")

    assert [name for name, _ in functions(tree)] == ["A.f", "A.f.g"]


def test_each_survivor_is_there_and_has_a_reason() -> None:
    """The list of survivors names mutants of the sample only, and says why of each."""
    names = {m.name for m in sample()}

    assert survivors().keys() <= names
    assert all(len(reason.split()) > 3 for reason in survivors().values())
