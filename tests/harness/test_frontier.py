"""Many states at once: the same next states, ends and faults as one by one."""

import itertools

import numpy as np
import pytest

from harness.arrays import Index, Table, packed, unpacked
from harness.automaton import alike
from harness.exploration import Exploration
from harness.folding import sweep
from tests.harness.toys import explore

PROGRAMS = [
    ("send 1; wait", "send 0; wait"),
    ("wait; wait 1", "send 0", "send 0"),
    ("arm; look; sleep", "send 0"),
    ("rest; rest; send 1; rest; wait", "rest; wait; rest; send 0; rest", "rest; rest; rest"),
    ("wait; fall", "send 0; wait", "send 1; send 1"),
    ("wait; raise", "send 0; wait"),
]


@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize("programs", PROGRAMS, ids="|".join)
def test_a_sweep_finds_what_a_search_of_single_states_does(
    programs: tuple[str, ...], reduce: bool
) -> None:
    """States, steps, ends, outcomes and what is wrong are the same, a death at any point too."""
    for dies in ((), (0,)):
        _compare(explore(*programs, reduce=reduce, dies=dies))


@pytest.mark.parametrize("programs", PROGRAMS[:4], ids="|".join)
def test_a_sweep_of_groups_finds_what_a_search_of_groups_does(programs: tuple[str, ...]) -> None:
    """Groups with several results of one event give the same as well."""
    exploration = explore(*programs)
    exploration.run()

    _compare(exploration.grouped([alike(automaton) for automaton in exploration.automata]))


def test_ranks_that_have_no_senders_commute() -> None:
    """Pairs that talk among themselves are looked at one after the other."""
    pairs = {0: (1,), 1: (0,), 2: (3,), 3: (2,)}
    _compare(
        explore("send 1; wait", "wait; send 0", "send 3; wait", "wait; wait", senders=pairs),
    )


def test_a_way_to_what_is_wrong_is_one_of_steps() -> None:
    """Each state of the way that is told is a next one of the state before."""
    exploration = explore("wait; wait 1", "send 0", "send 0")
    found = sweep(exploration)

    worlds = exploration.worlds
    way = [worlds.start, *found.worlds]
    assert exploration.verdict(way[-1]) == found.wrong != ""
    for before, after in itertools.pairwise(way):
        assert after in [world for _, world in worlds.successors(before)]


def test_an_index_numbers_keys_as_a_dictionary_does() -> None:
    """Keys that come again have their number, new ones the next, however many come at once."""
    source = np.random.default_rng(0)
    index, numbers = Index(2), dict[tuple[int, ...], int]()
    for size in (1, 5, 3000, 0, 20000):
        keys = source.integers(0, 150, (2, size)).astype(np.uint64)

        found = index.numbers(keys)

        fresh = {tuple(key): int(n) for key, n in zip(keys.T.tolist(), found, strict=True)}
        assert all(numbers.get(key, n) == n for key, n in fresh.items())
        numbers |= fresh
        assert sorted(numbers.values()) == list(range(len(index)))
        assert (index.keys[:, found] == keys).all()


def test_a_table_makes_the_rows_of_a_key_once() -> None:
    """Rows come for each key that is asked for, in order, and are made when first asked for."""
    made = []

    def make(size: int, value: int) -> list[tuple[int, int]]:
        made.append((size, value))
        return [(value, number) for number in range(size)]

    table = Table(make, [4, 10], 2)
    of, rows = table.rows(np.array([2, 0, 1, 2]), np.array([7, 7, 9, 7]))
    again = table.row(np.array([1]), np.array([9]))

    assert of.tolist() == [0, 0, 2, 3, 3]
    assert rows.tolist() == [[7, 7, 9, 7, 7], [0, 1, 0, 0, 1]]
    assert again.tolist() == [[9], [0]]
    assert sorted(made) == [(0, 7), (1, 9), (2, 7)]


def test_integers_are_packed_into_words_and_back() -> None:
    """What does not fit is refused, and nothing is cut off."""
    parts = [np.array([0, 1, 1023]), np.array([5, 6, (1 << 40) - 1]), np.array([3, 0, 1 << 19])]

    words = packed(parts, [10, 40, 20])

    assert words.shape == (2, 3)
    assert unpacked(words, [10, 40, 20]).tolist() == [part.tolist() for part in parts]
    with pytest.raises(OverflowError, match="0 to 1023 does not fit in 9 bits"):
        packed(parts, [9, 40, 20])


def _compare(exploration: Exploration) -> None:
    one_by_one, at_once = exploration.run(), sweep(exploration)

    assert bool(at_once.wrong) == bool(one_by_one.wrong)
    assert at_once.complete == one_by_one.complete
    if not one_by_one.wrong:
        assert at_once.states == one_by_one.states
        assert at_once.steps == one_by_one.steps
        assert at_once.ends == one_by_one.ends
        assert at_once.outcomes == one_by_one.outcomes
