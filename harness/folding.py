"""An exploration of many more states, by putting states of each rank that are alike in groups.

What can be told apart by nothing but silent moves inside a rank (which of its threads goes first,
say) is one state for the others. The groups come from what was seen so far of each rank, in rounds:
explore some states, put in groups what is alike, explore more of the groups.

Groups that are wrong cost nothing but time: a group can do whatever one of its states can, so if
nothing is wrong with what groups may come to, nothing is with what ranks may. What seems to be
wrong is looked for in the ranks themselves, and only told with a schedule of theirs.
"""

import math
import time
from dataclasses import replace

from harness.automaton import alike
from harness.exploration import Exploration, Found

_FIRST = 4_000  # states of the first round; each round looks at more than twice as many
_MORE = 3


def explore_folded(exploration: Exploration, *, most_states: float = math.inf) -> Found:
    """Look at all states, or at so many, of groups of the states of each rank.

    Returns:
        What was found. States, steps and ends are those of the last round. A schedule is one of
        the ranks, and short, though a shorter one may show the same.
    """
    began = time.perf_counter()
    most = _FIRST
    groups: list[list[int]] = [[] for _ in exploration.automata]
    while True:
        folded = exploration.grouped(groups)
        found = folded.run(most_states=min(most, most_states))
        if found.wrong:
            wrong, schedule = exploration.follow(folded, found.worlds)
            if wrong:
                found = replace(found, wrong=wrong, schedule=schedule)
        else:
            wrong = ""
        if wrong or found.complete or (not found.wrong and found.states >= most_states):
            return replace(found, seconds=time.perf_counter() - began)
        before, groups = groups, [alike(automaton) for automaton in exploration.automata]
        if found.wrong and groups == before:
            raise RuntimeError(f"groups are too coarse to tell whether this can be: {found.wrong}")
        most *= _MORE
