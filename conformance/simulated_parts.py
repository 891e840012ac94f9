"""A case explored in parts, in each of which it is settled how each source stops.

Parts are smaller, by far, and together hardly larger than the whole: once a source has stopped, it
is in one of them anyway. What is known of a rank in one part, its states and steps, holds in all
in which its own source stops in the same way.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from conformance.simulated_cases import Case
from harness.automaton import Automaton
from harness.exploration import Found
from harness.folding import explore_folded


@dataclass(frozen=True)
class Piece:
    """What is explored in one go of a case: parts in which all sources but the last stop alike.

    Attributes:
        case: The case.
        number: Which piece, from 0.
        of: How many pieces there are.
        parts: The parts, or the whole case alone.
    """

    case: Case
    parts: tuple[Case, ...]
    number: int = 0
    of: int = 1

    @property
    def name(self) -> str:
        """The case, and which piece if there are several."""
        return self.case.name + (f", piece {self.number + 1} of {self.of}" if self.of > 1 else "")


def pieces(case: Case) -> list[Piece]:
    """Return all pieces of a case."""
    found: dict[tuple[int, ...], list[Case]] = {}
    for part in case.apart():
        found.setdefault(part.ways[:-1], []).append(part)
    return [
        Piece(case, tuple(parts), number, len(found)) for number, parts in enumerate(found.values())
    ]


def explore_parts(parts: Iterable[Case], *, most_states: float = math.inf) -> Found:
    """Look at every order of events of parts of one case, until one is wrong.

    Args:
        parts: The parts, at least one.
        most_states: Stop after so many of a part.

    Returns:
        Sums of what was found in the parts, with what is wrong, if anything is.
    """
    known: dict[tuple[int, int], Automaton] = {}
    found: list[Found] = []
    for part in parts:
        ways = list(enumerate(part.ways))
        exploration = part.exploration({r: known[r, way] for r, way in ways if (r, way) in known})
        found.append(explore_folded(exploration, most_states=most_states))
        if found[-1].wrong:
            break
        known |= {(rank, way): exploration.automata[rank] for rank, way in ways}
    return _together(found)


def _together(parts: Sequence[Found]) -> Found:
    return replace(
        parts[-1],
        states=sum(part.states for part in parts),
        steps=sum(part.steps for part in parts),
        ends=sum(part.ends for part in parts),
        deepest=max(part.deepest for part in parts),
        complete=all(part.complete for part in parts),
        seconds=sum(part.seconds for part in parts),
        outcomes=frozenset[Hashable]().union(*(part.outcomes for part in parts)),
    )
