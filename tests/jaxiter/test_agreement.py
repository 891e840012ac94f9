"""What is decided, from the reports alone."""

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxiter import notes
from jaxiter.agreement import Standing, Terms, Verdict, decide, schemas_for_padding
from jaxiter.errors import Note

Ends = Literal["drop", "pad", "equal"]


def terms(processes: int, ends: Ends, divisor: int = 1) -> Terms:
    return Terms(4, ends, divisor, tuple(range(processes)))


def note(process: int) -> Note:
    return Note("SourceError", f"process {process}", process)


standings = st.lists(
    st.builds(
        Standing,
        held=st.integers(0, 6),
        ended=st.booleans(),
        tail=st.integers(0, 3),
        error=st.none() | st.just(note(0)),
        left=st.booleans(),
        taken=st.just(0),
        reach=st.integers(0, 8),
    ).map(lambda s: s if s.ended else replace(s, tail=0, reach=0)),
    min_size=1,
    max_size=4,
)
any_ends: st.SearchStrategy[Ends] = st.sampled_from(["drop", "pad", "equal"])


@settings(max_examples=500, derandomize=True)
@given(standings, any_ends, st.integers(0, 6))
def test_a_verdict_is_either_final_or_says_what_it_waits_for(
    given_standings: list[Standing], ends: Ends, decided: int
) -> None:
    """No verdict is without a reason, and none waits for a process that has nothing more to say."""
    verdict = decide(terms(len(given_standings), ends), given_standings, decided)

    assert verdict.upto >= decided
    assert (verdict.final is None) == bool(verdict.blocked_by)
    for process in verdict.blocked_by:
        standing = given_standings[process]
        assert not standing.ended or (ends == "pad" and standing.reach <= verdict.upto)
        assert not standing.left
        assert standing.error is None or ends == "drop"


@settings(max_examples=500, derandomize=True)
@given(standings, any_ends)
def test_nothing_is_granted_that_a_process_does_not_hold(
    given_standings: list[Standing], ends: Ends
) -> None:
    """Each process holds every granted batch, or has ended and pads."""
    verdict = decide(terms(len(given_standings), ends), given_standings, 0)

    for standing in given_standings:
        reach = standing.reach if ends == "pad" else 0
        assert max(standing.batches(ends), reach) >= verdict.upto


def test_the_lowest_position_wins_then_the_lowest_process() -> None:
    """Of several failures the one at the lowest batch is raised, then the lowest process's."""
    three = [Standing(held=5), Standing(held=3, error=note(1)), Standing(held=3, error=note(2))]
    verdict = decide(terms(3, "pad"), three, 2)
    earlier = decide(terms(3, "pad"), [*three[:2], Standing(held=2, error=note(2))], 2)

    assert verdict.final is not None
    assert (verdict.upto, verdict.final.error) == (3, note(1))
    assert earlier.final is not None
    assert (earlier.upto, earlier.final.error) == (2, note(2))


def test_a_failure_does_not_wait_for_others() -> None:
    """A failure is decided at once, where the slowest process known stands."""
    verdict = decide(terms(2, "pad"), [Standing(held=1), Standing(held=5, error=note(1))], 1)

    assert verdict == Verdict(1, verdict.final)
    assert verdict.final is not None


@pytest.mark.parametrize("held", [3, 5])
def test_a_failure_at_or_beyond_the_end_stops_nothing(held: int) -> None:
    """With drop_last, a failure where no process will come is not raised."""
    ended = Standing(held=3, ended=True)
    failed = Standing(held=held, error=note(1))
    verdict = decide(terms(2, "drop"), [ended, failed], 0)
    waiting = decide(terms(3, "drop"), [ended, failed, Standing(held=1)], 0)

    assert verdict.final is not None
    assert (verdict.upto, verdict.final.error) == (3, None)
    assert waiting == Verdict(1, None, (2,))


def test_a_leave_stops_where_things_were_decided() -> None:
    """When a process leaves, nothing beyond the last decision is granted."""
    verdict = decide(terms(2, "pad"), [Standing(held=9), Standing(held=9, left=True, taken=4)], 6)

    assert verdict.upto == 6
    assert verdict.final is not None
    assert verdict.final.left == (1, 4)


def test_a_process_that_pads_is_waited_for_too() -> None:
    """Decisions run no further ahead of a process that pads than it says."""
    both = [Standing(held=2, ended=True, reach=4), Standing(held=6, ended=True)]
    later = [replace(both[0], reach=6), both[1]]

    assert decide(terms(2, "pad"), both, 0) == Verdict(4, None, (0,))
    assert decide(terms(2, "pad"), later, 4).upto == 6
    assert decide(terms(2, "pad"), later, 4).final is not None


def test_leaving_at_the_end_is_no_leave() -> None:
    """A process that leaves when all it could get is decided does not spoil the end."""
    both = [Standing(held=3, ended=True), Standing(held=3, ended=True, left=True)]
    verdict = decide(terms(2, "pad"), both, 3)

    assert verdict.final is not None
    assert verdict.final.error is None


def test_even_tails_pass_if_they_divide() -> None:
    """Without drop_last and paddings, equal tails are a last batch, if the devices can share it."""
    both = [Standing(held=2, ended=True, tail=2)] * 2
    even = decide(terms(2, "equal", divisor=2), both, 0)
    odd = decide(terms(2, "equal", divisor=4), both, 0)

    assert even.final is not None
    assert (even.upto, even.final.error) == (3, None)
    assert odd.final is not None
    assert odd.final.error is not None
    assert (odd.upto, odd.final.error.kind) == (2, "UnevenError")


def test_dropped_rows_are_counted() -> None:
    """What drop_last leaves out is counted as far as it is known."""
    both = [Standing(held=2, ended=True, tail=3), Standing(held=5)]
    verdict = decide(terms(2, "drop"), both, 0)

    assert verdict.final is not None
    assert verdict.final.dropped == 3 + 3 * 4


def test_schemas_are_compared_where_they_change() -> None:
    """A schema that changes on one process only stops all at that batch."""
    one = Standing(held=6, schemas=((0, "a"),))
    two = Standing(held=6, schemas=((0, "a"), (4, "b")))
    verdict = decide(terms(2, "pad"), [one, two], 0)

    assert verdict.final is not None
    assert verdict.final.error is not None
    assert (verdict.upto, verdict.final.error.kind) == (4, "MismatchError")
    assert decide(terms(2, "pad"), [two, two], 0) == Verdict(6, None, (0, 1))


def test_padding_learns_schemas_it_cannot_know() -> None:
    """Schemas are told where a process pads, when they change, and not twice."""
    ended = Standing(ended=True, reach=6)
    reading = Standing(held=6, schemas=((0, "a"), (4, "b")))
    both = [ended, reading]

    assert schemas_for_padding(terms(2, "pad"), both, 0, 6, None) == ((0, "a"), (4, "b"))
    assert schemas_for_padding(terms(2, "pad"), both, 5, 6, "b") == ()
    assert schemas_for_padding(terms(2, "pad"), [reading, reading], 0, 6, None) == ()


def test_many_processes_are_summed_up() -> None:
    """A message names a few processes one by one, and counts the rest."""
    assert notes.names([3]) == "process 3"
    assert notes.names([0, 2, 5]) == "processes 0, 2 and 5"
    assert notes.names(range(100)) == "processes 0, 1, 2, 3, 4, 5, 6, 7 and 92 more"


def test_all_options_that_differ_are_named() -> None:
    """Every option that differs is told, with its values and who has them."""
    error = notes.disagreement([{"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3}])

    assert error is not None
    assert "b is 2 on process 0; 3 on process 1" in error.message
    assert "c is 3 on process 0; null on process 1" in error.message
    assert notes.disagreement([{"a": 1}] * 3) is None
