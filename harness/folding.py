"""An exploration of many more states, by putting states of each rank that are alike in groups.

What can be told apart by nothing but silent moves inside a rank (which of its threads goes first,
say) is one state for the others. The groups come from what was seen so far of each rank, in rounds:
explore some states, put in groups what is alike, explore more of the groups. A round goes on after
something seems to be wrong, so that the next one knows more states.

Groups that are wrong cost nothing but time: a group can do whatever one of its states can, so if
nothing is wrong with what groups may come to, nothing is with what ranks may. What seems to be
wrong is looked for in the ranks themselves, and only told with a schedule of theirs.
"""

import contextlib
import gc
import math
import time
from collections.abc import Hashable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from harness.arrays import Index
from harness.automaton import alike
from harness.exploration import Exploration, Found
from harness.frontier import Frontier

_FIRST = 200  # states of ranks of the first round
_MORE = 1.1  # times as many at least; groups of few new states are fewer
_AT_ONCE = 1 << 16  # states whose next ones are found together; more do not fit in a cache


def explore_folded(exploration: Exploration, *, most_states: float = math.inf) -> Found:
    """Look at all states, or at so many, of groups of the states of each rank.

    Returns:
        What was found. States, steps and ends are those of the last round. A schedule is one of
        the ranks, and short, though a shorter one may show the same.
    """
    began = time.perf_counter()
    with _uncollected():
        found = _in_rounds(exploration, most_states)
    return replace(found, seconds=time.perf_counter() - began)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Do without the collector of cycles: it would look at all states again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _in_rounds(exploration: Exploration, most_states: float) -> Found:
    groups = [alike(automaton) for automaton in exploration.automata]
    while True:
        folded = exploration.grouped(groups)
        known = sum(len(automaton.states) for automaton in exploration.automata)
        found = sweep(folded, most_states, max(_FIRST, _MORE * known))
        if found.complete and not folded.worlds.reduced_rightly:
            found = replace(found, complete=False)
        if found.wrong:
            wrong, schedule = exploration.follow(folded, found.worlds)
            if wrong:
                found = replace(found, wrong=wrong, schedule=schedule)
        else:
            wrong = ""
        if wrong or found.complete or (not found.wrong and found.states >= most_states):
            return found
        before, groups = groups, [alike(automaton) for automaton in exploration.automata]
        if found.wrong and groups == before:
            raise RuntimeError(f"groups are too coarse to tell whether this can be: {found.wrong}")


def sweep(
    exploration: Exploration, most_states: float = math.inf, most_of_ranks: float = math.inf
) -> Found:
    """Do what `Exploration.run` does, in arrays; of a way to what is wrong, the states alone.

    It goes on after what is wrong, to twice as many states, but judges no more of them.

    Args:
        exploration: What to look at.
        most_states: Look no further after so many states.
        most_of_ranks: Nor after so many states of single ranks.
    """
    began = time.perf_counter()
    worlds = exploration.worlds
    frontier = Frontier(worlds)
    start = frontier.keys(np.array([worlds.start]).T)
    seen = Index(len(start))
    seen.numbers(start)
    parents = [np.array([-1], np.int32)]
    held = 1  # states whose parents are known
    outcomes: set[Hashable] = set()
    steps = ends = done = depth = 0
    wrong, at = "", -1
    level = len(seen)  # where the states that are a step further begin
    cut = False
    while done < len(seen) and not cut:
        upto = min(level, done + _AT_ONCE)
        states = frontier.worlds(seen.keys[:, done:upto])
        of, after = frontier.successors(states)
        final = np.flatnonzero(np.bincount(of, minlength=upto - done) == 0)
        bad = frontier.wrong(states)[:1]
        for position in [] if wrong else sorted({*final.tolist(), *bad.tolist()}):
            world = tuple(states[:, position].tolist())
            wrong = worlds.wrong(world) or exploration.wrong_at_end(world)
            ends += 1
            outcomes.add(worlds.outcomes(world))
            if wrong:
                at = done + position
                most_states = min(most_states, 2 * len(seen))
                break
        steps += len(of)
        numbers = seen.numbers(frontier.keys(after))
        fresh = np.empty(len(seen) - held, np.int32)
        new = numbers >= held
        fresh[numbers[new] - held] = done + of[new]
        parents.append(fresh)
        held = len(seen)
        done = upto
        if done == level:
            level, depth = len(seen), depth + 1
        of_ranks = sum(len(automaton.states) for automaton in exploration.automata)
        cut = done < len(seen) and (len(seen) >= most_states or of_ranks >= most_of_ranks)
    return Found(
        len(seen),
        steps,
        ends,
        depth,
        not cut and not wrong,
        wrong,
        (),
        time.perf_counter() - began,
        frozenset(outcomes),
        _way(frontier, seen, np.concatenate(parents), at) if at > 0 else (),
    )


def _way(
    frontier: Frontier, seen: Index, parents: NDArray[np.int32], at: int
) -> tuple[tuple[int, ...], ...]:
    """Return the states that lead to one, without the start."""
    way: list[int] = []
    while at > 0:
        way.insert(0, at)
        at = int(parents[at])
    return tuple(map(tuple, frontier.worlds(seen.keys[:, way]).T.tolist()))
