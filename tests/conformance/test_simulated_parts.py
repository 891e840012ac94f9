"""A case in parts, in each of which it is settled how each source stops."""

import itertools
import json
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import pytest

from conformance.simulated import explore, main
from conformance.simulated_cases import Case
from conformance.simulated_parts import pieces

WHOLE = [
    Case(batches=2, ends="pad", fault="leave", at=0),
    Case(batches=1, fault="fail", at=1),
    Case(batches=1, ends="equal", fault="hang", at=0),
    Case(batches=1, fault="stop", at=1),
    Case(batches=1, ends="pad", tails=True),
    Case(fault="absent"),
]


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
def test_parts_come_to_the_outcomes_of_the_whole(case: Case) -> None:
    """Two ranks end in each way that they end in when their sources may still stop anyhow."""
    whole, parts = explore(case, fold=True)[1], explore(case, parts=True)[1]

    assert parts.complete
    assert parts.outcomes == whole.outcomes


@pytest.mark.parametrize("ends", ["drop", "pad", "equal"])
def test_of_two_ranks_that_have_the_same_part_one_order_is_looked_at(ends: Any) -> None:
    """With 1 and 2 exchanged as well, three ranks end in each way that the whole ends in."""
    case = Case(ranks=3, batches=1, ends=ends)

    whole, parts = explore(case, fold=True)[1], explore(case, parts=True)[1]

    assert len(case.apart()) == 2 * 3
    assert parts.outcomes | exchanged(parts.outcomes) == whole.outcomes


def exchanged(outcomes: Iterable[Any]) -> set[Hashable]:
    """Return the outcomes of three ranks with 1 for 2 and 2 for 1."""
    return {(zero, two, one) for zero, one, two in outcomes}


def test_pieces_are_all_parts_once() -> None:
    """A fault of its source is one of the ways that a source stops; its rank stands for itself."""
    case = Case(ranks=3, batches=2, fault="fail", at=2)

    parts = [part for piece in pieces(case) for part in piece.parts]

    assert parts == case.apart()
    assert [part.ways for part in parts] == list(
        itertools.product(range(3), range(3), range(3 + 3))
    )
    assert [piece.name for piece in pieces(case)][-1] == f"{case.name}, piece 9 of 9"


def test_a_case_is_in_the_table_when_all_its_pieces_are_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pieces are recorded one by one; of a case that lacks one, the table says nothing."""
    record = tmp_path / "record.jsonl"
    options = ["explore", "--parts", "--ends", "drop", "--fault", "none", "--markdown"]
    options += ["--record", str(record)]

    left = main([*options, "--minutes", "0"])
    first = capsys.readouterr().out
    whole = main(options)
    second = capsys.readouterr().out

    states = [json.loads(line)["states"] for line in record.read_text("utf-8").splitlines()]
    assert (left, whole) == (3, 0)
    assert "drop, none, piece 1 of 2: " in first
    assert "1 of 2 pieces are left" in first
    assert "0 cases, 0 states" in first
    assert "drop, none, piece 1 of 2: " not in second
    assert len(states) == 2
    assert f"| none | {sum(states):,} |" in second
