"""Groups of states that are alike: fewer states, the same outcomes, the same faults found."""

import pytest

from harness.automaton import alike, unasked
from harness.exploration import Exploration
from harness.folding import explore_folded, sweep
from tests.harness.toys import explore

RIGHT = [
    ("send 1; wait", "send 0; wait"),
    ("wait; wait", "send 0", "send 0"),
    ("arm; look; sleep", "send 0"),
    ("rest; rest; send 1; rest; wait", "rest; wait; rest; send 0; rest", "rest; rest; rest"),
    ("wait 1; send 1; wait 2; send 2", "rest; send 0; rest; wait", "rest; send 0; wait; rest"),
    ("wait 1; send 2; wait", "rest; send 0; rest", "wait; rest; send 0"),
]
WRONG = [
    ("wait; send 1", "wait; send 0"),
    ("wait; wait 1", "send 0", "send 0"),
    ("look; arm; sleep", "send 0"),
    ("rest; wait; rest; fall", "rest; send 0; wait", "send 1; send 1"),
    ("wait 1; send 2; wait", "rest; send 0; rest", "wait 1; rest; send 0"),
]


@pytest.mark.parametrize("programs", RIGHT, ids="|".join)
def test_groups_come_to_the_same_outcomes(programs: tuple[str, ...]) -> None:
    """What is explored in groups ends in each way that the ranks may end in, and no other."""
    full, folded = explore(*programs, reduce=False).run(), explore_folded(explore(*programs))

    assert folded.complete
    assert folded.outcomes == full.outcomes
    assert folded.states <= full.states


@pytest.mark.parametrize("programs", WRONG, ids="|".join)
def test_groups_find_what_is_wrong(programs: tuple[str, ...]) -> None:
    """What is wrong with the ranks is found with a schedule of theirs that shows it."""
    exploration = explore(*programs)
    full, folded = exploration.run(), explore_folded(exploration)

    passed = [world for _, world in exploration.replay(folded.schedule)]
    assert folded.wrong == full.wrong
    assert exploration.verdict([exploration.worlds.start, *passed][-1]) == folded.wrong


def test_silent_moves_of_a_rank_are_not_told_apart() -> None:
    """Many ranks that rest are explored in as many states as if they did not."""
    exploration = explore(*["rest; rest; rest; rest"] * 4, reduce=False)
    exploration.run()

    groups = [alike(automaton) for automaton in exploration.automata]

    assert exploration.run().states == 5**4
    assert exploration.grouped(groups).run().states < 3**4


def test_groups_that_are_too_coarse_miss_nothing() -> None:
    """Whatever states are put together, all that the ranks may come to is still found."""
    full = explore("wait; wait 1", "send 0", "send 0")
    found = full.run()
    groups = []
    for automaton in full.automata:
        labels = [automaton.label(number) for number in range(len(automaton.states))]
        groups.append([labels.index(label) for label in labels])

    coarse: Exploration = full.grouped(groups)

    assert coarse.run().wrong == found.wrong
    assert full.follow(coarse, coarse.run().worlds)[0] in ("", found.wrong)


def test_whom_a_rank_sends_something_unasked_follows_from_its_steps() -> None:
    """Rank 0 sends rank 1 nothing before it has heard of it, but then rank 2 may get something."""
    exploration = explore("wait 1; send 2; wait 2; send 1", "send 0; wait", "wait; send 0")
    exploration.run()

    asking, asked, waiting = (
        unasked(automaton, range(len(automaton.states))) for automaton in exploration.automata
    )

    assert (asking[0], asked[0], waiting[0]) == (1 << 2, 1 << 0, 0)


def test_steps_that_were_not_known_forbid_what_was_left_out_for_lack_of_them() -> None:
    """A reduction by moves alone does not pass for right once a rank has heard something."""
    exploration = explore("wait 1; send 2", "send 0", "rest; wait")
    groups = [alike(automaton) for automaton in exploration.automata]

    grouped = exploration.grouped(groups)

    assert grouped.worlds.reduced_rightly
    assert sweep(grouped).complete
    assert not grouped.worlds.reduced_rightly
    assert explore_folded(exploration).complete


def test_a_search_of_groups_that_was_cut_short_says_so() -> None:
    """A limit of states leaves `complete` false."""
    found = explore_folded(explore("send 1; wait", "send 0; wait"), most_states=2)

    assert not found.complete
    assert not found.wrong
