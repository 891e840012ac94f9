"""The real protocol machine in small cases: every order of events, every end, every fault."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance import simulated_table
from conformance.simulated import draw, explore, main
from conformance.simulated_cases import ENDS, FAULTS, Case
from harness.folding import sweep

# All but process 0 stopping, with a batch more where that costs least; see `tox -e exhaustive`.
PAIRS = [
    Case(batches=2 if ends == "drop" and fault != "stop" else 1, ends=ends, fault=fault, at=at)
    for ends in ENDS
    for fault in FAULTS
    for at in ((1,) if fault in ("none", "stop") else (0, 1))
]
MORE = [
    Case(ends="pad", tails=True),
    Case(ends="equal", tails=True, fault="leave"),
    Case(batches=2, ends="pad", fault="leave", at=0),
    Case(batches=3, most_ahead=4),
    Case(fault="die", listing=True),
]
COMPARED = [
    *(Case(batches=1, ends=ends, fault=fault) for ends in ENDS for fault in ("none", "die")),
    *(Case(batches=1, fault=fault, at=0) for fault in ("leave", "unplaced", "fail")),
    Case(fault="stop"),
]
TRIPLES = [
    *(Case(ranks=3, batches=1, ends=ends) for ends in ENDS),
    *(Case(ranks=3, batches=1, fault=fault, at=2) for fault in ("die", "leave", "unplaced")),
    Case(ranks=3, batches=0, fault="stop", at=0),
]
COMMUTING = [
    Case(ranks=3, batches=0, fault="leave", at=0),
    *(Case(ranks=3, batches=0, fault=fault, at=2) for fault in ("fail", "die", "stop")),
]
SWEPT = [
    Case(fault="die", at=0),
    Case(fault="stop"),
    Case(ends="pad", fault="schema", at=0),
    Case(fault="leave", listing=True, reduce=False),
]


@pytest.mark.parametrize("case", [*PAIRS, *MORE, *TRIPLES], ids=lambda case: case.name)
def test_ranks_come_to_one_outcome_in_every_order_of_events(case: Case) -> None:
    """Whatever happens when, all get the same batches and the same end."""
    words, found = explore(case, fold=True)

    assert not found.wrong, words
    assert found.complete


@pytest.mark.parametrize("case", COMPARED, ids=lambda case: case.name)
def test_groups_of_states_come_to_the_same_outcomes(case: Case) -> None:
    """What groups of abridged states come to is what single whole states do, no more, no less."""
    full, folded = explore(replace(case, abridged=False))[1], explore(case, fold=True)[1]

    assert full.complete
    assert not full.wrong
    assert folded.outcomes == full.outcomes
    assert folded.states < full.states


@pytest.mark.parametrize("case", COMMUTING, ids=lambda case: case.name)
def test_one_order_of_what_commutes_comes_to_all_outcomes(case: Case) -> None:
    """Three ranks end in each way that they end in when every order is looked at."""
    one, every = explore(case, fold=True)[1], explore(replace(case, reduce=False), fold=True)[1]

    assert every.complete
    assert one.outcomes == every.outcomes
    assert one.states < every.states


@pytest.mark.parametrize("case", SWEPT, ids=lambda case: case.name)
def test_many_states_at_once_are_those_of_one_by_one(case: Case) -> None:
    """Arrays of states have the next states that single ones have, as time passes as well."""
    one_by_one, at_once = case.exploration().run(), sweep(case.exploration())

    assert at_once.complete
    assert at_once.states == one_by_one.states
    assert at_once.steps == one_by_one.steps
    assert at_once.ends == one_by_one.ends
    assert at_once.outcomes == one_by_one.outcomes


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("fault", ["options", "absent"])
def test_three_ranks_come_to_one_outcome_before_they_read(ends: str, fault: str) -> None:
    """Options that differ and a rank that is missing stop three ranks, in every order."""
    words, found = explore(Case(ranks=3, batches=3, ends=ends, fault=fault, at=2))  # type: ignore[arg-type]

    assert not found.wrong, words
    assert found.complete


def test_random_orders_of_events_of_larger_cases() -> None:
    """Up to 6 ranks, 9 batches and short tails, with any fault, come to one outcome."""
    for seed in range(600):
        source = random.Random(seed)
        ranks = source.randint(2, 6)
        case = Case(
            ranks=ranks,
            batches=source.randint(0, 9),
            ends=source.choice(ENDS),
            fault=source.choice(FAULTS),
            at=source.randrange(ranks),
            tails=True,
            prefetch=source.randint(1, 3),
        )

        wrong, trace = draw(case, seed)

        assert not wrong, f"{case.name}, seed {seed}: {wrong}\n{trace}"


def test_the_same_seed_gives_the_same_run() -> None:
    """A run that is drawn can be had again."""
    case = Case(ranks=3, batches=3, tails=True, fault="leave")

    assert draw(case, 7) == draw(case, 7)
    assert draw(case, 7) != draw(case, 8)


def test_the_command_explores_and_tells_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    """`explore` names the case, its states, and whether that is all."""
    status = main(["explore", "--ends", "pad", "--fault", "options", "--at", "0"])

    out = capsys.readouterr().out
    assert status == 0
    assert "2 ranks, up to 1 batches, pad, options of rank 0" in out
    assert "all looked at" in out


def test_an_exploration_that_is_cut_short_does_not_count_as_right() -> None:
    """The status says that not all was looked at, of a case or of the cases."""
    options = ["explore", "--fold", "--fault", "options", "absent", "--ends", "drop"]

    assert main([*options, "--most-states", "5"]) == 3
    assert main([*options, "--minutes", "0"]) == 3
    assert main(options) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["explore", "--at", "5"], "--at 5: of 2 ranks the last is 1"),
        (["explore", "--ranks", "1"], "--ranks: 1 is not 2 or more"),
        (["cost", "--ranks", "4", "1"], "--ranks: 1 is not 2 or more"),
        (["cost", "--decisions", "0"], "--decisions: 0 is not 1 or more"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is run that would look like an answer, or never end."""
    with pytest.raises(SystemExit) as raised:
        main(options)

    assert raised.value.code == 2
    assert words in capsys.readouterr().err


def test_what_is_recorded_is_not_explored_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of a record add up to one table; those of other code are done again."""
    record = tmp_path / "record.jsonl"
    options = ["explore", "--fold", "--fault", "none", "--record", str(record)]
    main([*options, "--ends", "drop", "pad", "--minutes", "0"])
    part = capsys.readouterr().out

    status = main([*options, "--ends", "drop", "pad", "--markdown", "--jobs", "2"])
    out = capsys.readouterr().out
    monkeypatch.setattr(simulated_table, "code", lambda: "other")
    main([*options, "--ends", "drop"])
    again = capsys.readouterr().out

    assert status == 0
    assert "batches, drop, none: " in part
    assert "1 of 2 pieces are left" in part
    assert "batches, pad, none: " in out
    assert "batches, drop, none: " not in out
    lines = read_lines(record)
    cells = [f"{lines[0]['states']:,}", f"{lines[0]['seconds']:.1f}"]
    assert f"| none | {' | '.join(cells)} | {lines[1]['states']:,} |" in out
    assert "batches, drop, none: " in again


def read_lines(record: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("rests", [("rest",), ("rest short",)], ids=["long", "short"])
def test_a_reader_that_rests_shortly_holds_more(rests: tuple[str, ...]) -> None:
    """Whether a rest was short decides on the look-ahead, wherever it may still grow."""
    (rank,) = Case(ranks=1, batches=9, most_ahead=8, look_ahead=2).members()
    rank.tick(0.0)
    grown = set()
    while not rank.finished:
        moves = [m for m in rank.moves() if not m.startswith(("end", "rest"))]
        rank.do(next((m for m in rank.moves() if m in rests), [*moves, "end 0"][0]), 0.0)
        grown.add(rank.machine.look_ahead)

    assert (max(grown) > 2) == ("rest short" in rests)


def test_the_command_replays_a_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    """`replay` shows where a schedule leaves each rank."""
    status = main(
        ["replay", "--ends", "drop", "--fault", "none", "--schedule", "1 write; 0 hears 1; 0 batch"]
    )

    assert status == 0
    assert "rank 0: 1 read" in capsys.readouterr().out


def test_an_event_that_is_not_possible_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A schedule that does not fit is status 2, and a line with the event and what is possible."""
    status = main(["replay", "--ends", "drop", "--fault", "none", "--schedule", "0 batch"])

    assert status == 2
    assert capsys.readouterr().err.startswith("event 0 of the schedule, '0 batch', is not possible")
