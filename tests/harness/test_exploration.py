"""The exploration finds what is wrong, by the shortest way, and looks at everything."""

import pytest

from tests.harness.toys import explore


def test_ranks_that_all_finish_are_right() -> None:
    """Nothing is wrong with two ranks that send before they wait."""
    found = explore("send 1; wait", "send 0; wait").run()

    assert found.complete
    assert not found.wrong
    assert found.schedule == ()


def test_two_ranks_that_wait_for_each_other_are_found() -> None:
    """A deadlock at the start needs no event at all, and names both ranks."""
    found = explore("wait; send 1", "wait; send 0").run()

    assert found.wrong == "nothing more can happen, and not finished: rank 0, 1"
    assert found.schedule == ()
    assert not found.complete


def test_a_deadlock_is_found_by_its_shortest_schedule() -> None:
    """Rank 0 takes the message of whoever is first, and then waits for rank 1 for ever."""
    exploration = explore("wait; wait 1", "send 0", "send 0")

    found = exploration.run()

    assert found.wrong == "nothing more can happen, and not finished: rank 0"
    assert sorted(found.schedule) == sorted(
        ["1 send 0", "2 send 0", "0 hears 1", "0 hears 2", "0 wait"]
    )
    world = exploration.replay(found.schedule)[-1][1]
    assert exploration.verdict(world) == found.wrong
    assert "rank 0: at 'wait 1'" in exploration.worlds.describe(world)


@pytest.mark.parametrize("reduce", [True, False])
def test_a_lost_wake_up_is_found(reduce: bool) -> None:
    """A ring between looking and falling asleep is lost unless it was armed before looking."""
    right = explore("arm; look; sleep", "send 0", reduce=reduce).run()
    wrong = explore("look; arm; sleep", "send 0", reduce=reduce).run()

    assert not right.wrong
    assert wrong.wrong == "nothing more can happen, and not finished: rank 0"
    assert wrong.schedule in (
        ("0 look", "1 send 0", "0 hears 1", "0 arm"),
        ("1 send 0", "0 look", "0 hears 1", "0 arm"),
    )


@pytest.mark.parametrize("reduce", [True, False])
def test_what_must_never_be_ends_the_search(reduce: bool) -> None:
    """A rank that says it is wrong is found with all events that it needs, and no others."""
    found = explore("wait; fall", "send 0; wait", "send 1; send 1", reduce=reduce).run()

    assert found.wrong == "rank 0: it fell"
    assert found.schedule == ("1 send 0", "0 hears 1", "0 wait", "0 fall")


@pytest.mark.parametrize("reduce", [True, False])
def test_an_error_of_a_rank_is_told_with_its_schedule(reduce: bool) -> None:
    """A rank that raises is wrong, and the events that it takes are told."""
    found = explore("wait; raise", "send 0; wait", reduce=reduce).run()

    assert found.wrong == "rank 0: raised ValueError('no more rows')"
    assert found.schedule == ("1 send 0", "0 hears 1", "0 wait", "0 raise")


def test_the_reduction_finds_the_same_ends() -> None:
    """Fewer states are looked at; the ends and the length of the way to a deadlock are the same."""
    pairs = {0: (1,), 1: (0,), 2: (3,), 3: (2,)}
    for last in ("wait; send 2", "wait; wait"):
        programs = ("send 1; wait", "wait; send 0", "send 3; wait", last)

        full = explore(*programs, reduce=False, senders=pairs).run()
        reduced = explore(*programs, senders=pairs).run()

        assert reduced.states < full.states
        assert reduced.wrong == full.wrong
        assert len(reduced.schedule) == len(full.schedule)
        assert bool(full.wrong) == (last == "wait; wait")


def test_a_rank_that_dies_leaves_the_other_waiting() -> None:
    """A death may come at any point; the earliest one is found first."""
    found = explore("wait", "send 0", dies=(1,)).run()

    assert found.wrong == "nothing more can happen, and not finished: rank 0"
    assert found.schedule == ("1 dies",)


def test_a_search_that_was_cut_short_says_so() -> None:
    """A limit of states or steps leaves `complete` false."""
    assert not explore("send 1; wait", "send 0; wait").run(most_states=2).complete
    assert not explore("send 1; wait", "send 0; wait").run(most_steps_deep=1).complete


def test_an_event_that_does_not_fit_is_refused() -> None:
    """The error says which event, and what is possible instead."""
    with pytest.raises(ValueError, match=r"event 1 .* '1 wait', is not possible.*1 hears 0"):
        explore("send 1", "wait").replay(["0 send 1", "1 wait"])
