"""Outcomes of local processes: whatever a rank does, each rank has its own within the limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from harness import Died, Gang, Hung, Outcome, Raised, Returned, rank
from tests.harness import cases
from tests.harness.conftest import run_in_time

STALL_S = 1.0

both = pytest.mark.parametrize("culprit", [0, 1])


def run(gang: Gang, fn: Callable[..., Any], *args: Any) -> list[Outcome]:
    """See `run_in_time`."""
    return run_in_time(gang, fn, *args, stall_s=STALL_S)


def ks(outcome: Outcome) -> list[int]:
    """Numbers of the batches that a rank has recorded."""
    return [event.fields["k"] for event in outcome.events]


def test_functions_and_arrays_travel_by_value(gang: Gang) -> None:
    """A closure defined in a test runs on each rank and its arrays come back."""
    scale = np.arange(3)

    def scaled() -> Any:
        rank.record("scaled", scale=scale, me=rank.this().rank)
        return scale * rank.this().rank

    outcomes = gang.run(scaled)

    assert [o.value.tolist() for o in outcomes if isinstance(o, Returned)] == [[0, 0, 0], [0, 1, 2]]
    assert [o.events[0].fields["me"] for o in outcomes] == [0, 1]
    assert all(o.events[0].fields["scale"].tolist() == [0, 1, 2] for o in outcomes)


@both
def test_a_rank_that_sleeps_for_ever_hangs_the_gang(gang: Gang, culprit: int) -> None:
    """Both are hung; stacks and the sentence show the sleeper and the one in a collective."""
    outcomes = run(gang, cases.culprit_then_gather, culprit, "sleep")

    sleeper, waiter = outcomes[culprit], outcomes[1 - culprit]
    assert isinstance(sleeper, Hung)
    assert isinstance(waiter, Hung)
    assert "in sleep_for_ever" in sleeper.stacks
    assert "in gather" in waiter.stacks
    assert f"rank {culprit} waits asleep at cases.py" in waiter.why
    assert f"rank {1 - culprit} waits in a collective at cases.py" in waiter.why
    assert "after event #1 'batch' (k=1)" in waiter.why
    assert sleeper.why == waiter.why
    assert ks(sleeper) == ks(waiter) == [0, 1]
    assert waiter.last_event is not None
    assert waiter.last_event.fields == {"k": 1}


@both
def test_a_rank_that_returns_early_hangs_those_that_wait_for_it(gang: Gang, culprit: int) -> None:
    """One returned, the other is hung, and its sentence says so."""
    outcomes = run(gang, cases.culprit_then_gather, culprit, "return")

    waiter = outcomes[1 - culprit]
    assert isinstance(outcomes[culprit], Returned)
    assert isinstance(waiter, Hung)
    assert f"rank {culprit} returned after event #1" in waiter.why


@pytest.mark.parametrize(
    ("fault", "end"), [("SIGKILL", {"signal": "SIGKILL"}), ("os._exit(3)", {"exit_status": 3})]
)
def test_the_death_of_a_rank_is_seen_while_its_child_lives(
    gang: Gang, fault: str, end: dict[str, Any]
) -> None:
    """A child that was forked holds all that its parent had open, and hides no death."""
    outcomes = run(gang, cases.fork_and_end, cases.FOR_EVER_S, fault)

    assert all(isinstance(outcome, Died) for outcome in outcomes)
    assert any(end.items() <= vars(outcome).items() for outcome in outcomes)


def test_ranks_without_their_files_have_outcomes(gang: Gang) -> None:
    """What removes temporary files takes the record, not the outcome; the next run has files."""
    outcomes = run(gang, cases.remove_files)
    after = gang.run(cases.gather)

    assert all(isinstance(outcome, Returned | Raised) for outcome in outcomes)
    assert all(isinstance(outcome, Returned) for outcome in after)


def test_all_that_raise_give_their_own_errors(gang: Gang) -> None:
    """A chained error arrives with its cause; the type's name has no module for builtins."""
    outcomes = run(gang, cases.raise_chained)

    for outcome in outcomes:
        assert isinstance(outcome, Raised)
        assert (outcome.type, outcome.message) == ("KeyError", "'column'")
        assert "LookupError" in outcome.mro
        assert "ValueError: no more rows" in outcome.traceback


@both
@pytest.mark.parametrize(
    ("fault", "exit_status", "signal_name"),
    [("os._exit(0)", 0, None), ("os._exit(3)", 3, None), ("SIGKILL", None, "SIGKILL")],
)
def test_a_rank_that_dies_says_how(
    gang: Gang, culprit: int, fault: str, exit_status: int | None, signal_name: str | None
) -> None:
    """Its events are kept; the other is aborted by process 0's death, and hung by another's."""
    outcomes = run(gang, cases.culprit_then_sleep, culprit, fault)

    dead, other = outcomes[culprit], outcomes[1 - culprit]
    assert isinstance(dead, Died)
    assert (dead.exit_status, dead.signal, dead.after) == (exit_status, signal_name, None)
    assert ks(dead) == [0, 1]
    if culprit == 0:
        assert isinstance(other, Died)
        assert other.after == 0
        # By JAX, whose older versions exit.
        assert other.signal == "SIGABRT" or other.exit_status == 1
    else:
        assert isinstance(other, Hung)
        assert other.why.startswith("rank 1 died ")


@both
def test_a_death_beside_a_collective_is_told_from_what_follows(gang: Gang, culprit: int) -> None:
    """The runtime may tell the other (an error, an abort) or not (a hang): the first is named."""
    outcomes = run(gang, cases.culprit_then_gather, culprit, "SIGKILL")

    dead, other = outcomes[culprit], outcomes[1 - culprit]
    assert isinstance(dead, Died)
    assert (dead.signal, dead.after) == ("SIGKILL", None)
    match other:
        case Hung():
            assert other.why.startswith(f"rank {culprit} died by SIGKILL")
        case Died():
            assert other.after == culprit
        case _:
            assert isinstance(other, Raised)


@both
@pytest.mark.parametrize("program", [cases.culprit_then_gather, cases.culprit_then_sleep])
def test_a_stopped_rank_is_named(gang: Gang, culprit: int, program: Callable[..., Any]) -> None:
    """Both are hung, only one is stopped, and the sentence says which."""
    outcomes = run(gang, program, culprit, "SIGSTOP")

    stopped, waiter = outcomes[culprit], outcomes[1 - culprit]
    assert isinstance(stopped, Hung)
    assert isinstance(waiter, Hung)
    assert (stopped.stopped, waiter.stopped) == (True, False)
    assert waiter.why.startswith(f"rank {culprit} is stopped (SIGSTOP) after event #1")
    assert "in culprit_then" in stopped.stacks


def test_a_stopped_rank_is_hung_when_the_others_have_ended(gang: Gang) -> None:
    """A rank that is stopped is hung also when nobody waits for it."""
    outcomes = run(gang, _stop_if, 1)

    assert isinstance(outcomes[0], Returned)
    assert isinstance(outcomes[1], Hung)
    assert outcomes[1].stopped


def test_a_rank_that_stops_on_purpose_is_not_waited_for(gang: Gang) -> None:
    """Where the caller says that a rank stops, the run ends with the others, before stall_s."""
    outcomes = gang.run(_stop_if, 1, stops=[1], stall_s=50, deadline_s=40)

    assert isinstance(outcomes[0], Returned)
    assert isinstance(outcomes[1], Hung)
    assert outcomes[1].stopped


def test_a_rank_that_waits_for_a_stopped_one_has_its_time(gang: Gang) -> None:
    """While another rank has not ended, one that stops on purpose makes no hang before stall_s."""
    outcomes = gang.run(cases.culprit_then_gather, 1, "SIGSTOP", stops=[1], stall_s=3.0)

    assert [type(outcome) for outcome in outcomes] == [Hung, Hung]
    assert outcomes[0].elapsed_s >= 3.0


def _stop_if(culprit: int) -> None:
    if rank.this().rank == culprit:
        cases.FAULTS["SIGSTOP"]()


@pytest.mark.parametrize(("culprit", "busy_s"), [(0, 4.0), (1, 20.0)])
def test_a_rank_that_computes_is_slow_not_hung(gang: Gang, culprit: int, busy_s: float) -> None:
    """A rank that is late by computing, and the one that waits for it, return in the end."""
    outcomes = gang.run(cases.compute_then_gather, culprit, busy_s, stall_s=STALL_S, deadline_s=120)

    assert [o.value for o in outcomes if isinstance(o, Returned)] == [[0, 1], [0, 1]]
    assert all(outcome.elapsed_s >= busy_s for outcome in outcomes)


def test_a_value_that_cannot_be_loaded_is_an_error_that_says_so(gang: Gang) -> None:
    """A value that the parent cannot make again counts as raised."""
    outcomes = run(gang, cases.give_unloadable)

    for outcome in outcomes:
        assert isinstance(outcome, Raised)
        assert "cannot be unpickled in the parent: ValueError: no more rows" in outcome.message


def test_an_error_that_fails_to_describe_itself_is_still_an_outcome(gang: Gang) -> None:
    """The type's qualified name is there, and a placeholder for the text."""
    outcomes = run(gang, cases.raise_hostile)

    for outcome in outcomes:
        assert isinstance(outcome, Raised)
        assert outcome.type == "tests.harness.cases.HostileError"
        assert outcome.message == "<no text: RuntimeError>"


@pytest.mark.parametrize(
    ("notes_are_a_list", "notes"), [(True, ("<no text: SystemExit>", "row 3")), (False, ("5",))]
)
def test_strange_texts_and_notes_of_an_error_still_arrive(
    gang: Gang, notes_are_a_list: bool, notes: tuple[str, ...]
) -> None:
    """The rank has raised, and not died, whatever classes the error's texts have."""
    outcomes = gang.run(cases.raise_strange, notes_are_a_list=notes_are_a_list)

    for outcome in outcomes:
        assert isinstance(outcome, Raised)
        assert (outcome.message, outcome.notes) == ("strange", notes)


def test_a_value_that_exits_when_loaded_does_not_end_the_parent(gang: Gang) -> None:
    """It counts as raised, as any value that the parent cannot make again."""
    outcomes = gang.run(cases.ExitsOnArrival)

    for outcome in outcomes:
        assert isinstance(outcome, Raised)
        assert outcome.type == "SystemExit"


def test_large_values_travel_both_ways(gang: Gang) -> None:
    """Forty megabytes each way arrive whole."""
    content = np.arange(5_000_000)
    outcomes = gang.run(cases.give, content, deadline_s=60)

    assert all((o.value[0] == content).all() for o in outcomes if isinstance(o, Returned))
    assert all(isinstance(o, Returned) for o in outcomes)


@pytest.fixture
def four() -> Iterator[Gang]:
    """Four processes of one device."""
    with Gang(processes=4) as gang:
        yield gang


def test_four_ranks_and_one_that_is_stopped(four: Gang) -> None:
    """The three that wait share one clause, the stopped one has its own."""
    outcomes = four.run(cases.culprit_then_gather, 2, "SIGSTOP", stall_s=STALL_S)

    assert all(isinstance(outcome, Hung) for outcome in outcomes)
    assert isinstance(outcomes[0], Hung)
    assert outcomes[0].why.startswith("rank 2 is stopped (SIGSTOP)")
    assert "ranks 0, 1, 3 wait in a collective" in outcomes[0].why
