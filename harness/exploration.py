"""Every order of events of a few ranks: breadth first, so that what is found is found shortest."""

import copy
import math
import time
from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from harness.automaton import Automaton, Explorable
from harness.worlds import End, World, Worlds

Judge = Callable[[End], str]


@dataclass(frozen=True)
class Found:
    """What an exploration found.

    Attributes:
        states: Distinct states of the world.
        steps: Steps between them that were looked at.
        ends: States in which nothing more happens.
        deepest: Steps of the longest of the shortest ways to a state.
        complete: Whether all states were looked at.
        wrong: What is wrong; empty if nothing.
        schedule: The shortest way there.
        seconds: Of wall time.
        outcomes: What came of the ranks, each way that they may end; None for one that died or
            stopped.
        worlds: States along the schedule.
    """

    states: int
    steps: int
    ends: int
    deepest: int
    complete: bool
    wrong: str
    schedule: tuple[str, ...]
    seconds: float
    outcomes: frozenset[Hashable] = frozenset()
    worlds: tuple[World, ...] = ()


class Exploration:
    """All orders of events from one start.

    Args:
        ranks: The ranks at their start, at time 0; they are not changed.
        judge: Says what is wrong with an end that all ranks have come to; empty if nothing.
        more: As for `Worlds`.
    """

    def __init__(self, ranks: Sequence[Explorable], judge: Judge, **more: Any) -> None:
        self.worlds = Worlds(ranks, **more)
        self._judge = judge

    @property
    def automata(self) -> Sequence[Automaton]:
        """What each rank may do."""
        return self.worlds.automata

    def grouped(self, groups: Sequence[Sequence[int]]) -> Self:
        """Return the exploration of groups of states of each rank: see `Worlds.grouped`."""
        twin = copy.copy(self)
        twin.worlds = self.worlds.grouped(groups)
        return twin

    def run(self, *, most_states: float = math.inf, most_steps_deep: float = math.inf) -> Found:
        """Look at all states, or at so many, or until something is wrong."""
        began = time.perf_counter()
        seen = {self.worlds.start: None}
        parents = array("q", [-1])
        events = [""]
        outcomes: set[Hashable] = set()
        frontier = [self.worlds.start]
        depth = steps = ends = number = 0
        wrong, at, complete = "", 0, True
        while frontier and not wrong:
            if depth >= most_steps_deep or len(seen) >= most_states:
                complete = False
                break
            following = []
            for world in frontier:
                wrong, at = self.worlds.wrong(world), number
                if wrong:
                    break
                nexts = [] if self.worlds.over(world) else self.worlds.successors(world)
                if not nexts:
                    ends += 1
                    outcomes.add(self.worlds.outcomes(world))
                    wrong = self.wrong_at_end(world)
                    if wrong:
                        break
                steps += len(nexts)
                for event, world_after in nexts:
                    if world_after not in seen:
                        seen[world_after] = None
                        parents.append(number)
                        events.append(event)
                        following.append(world_after)
                number += 1
            else:
                depth += 1
            frontier = following
        way: list[int] = []
        while wrong and at > 0:
            way.insert(0, at)
            at = parents[at]
        worlds = list(seen) if way else []
        return Found(
            len(seen),
            steps,
            ends,
            depth,
            complete and not wrong,
            wrong,
            tuple(events[number] for number in way),
            time.perf_counter() - began,
            frozenset(outcomes),
            tuple(worlds[number] for number in way),
        )

    def follow(self, grouped: Self, worlds: Iterable[World]) -> tuple[str, tuple[str, ...]]:
        """Look for a way through given states of groups to something that is wrong.

        Args:
            grouped: The exploration of groups of the states of this one.
            worlds: Its states along a way.

        Returns:
            What is wrong, and the shortest schedule there; nothing if no state on a way is wrong.
        """
        own = self.worlds.unreduced()
        allowed = {grouped.worlds.start, *worlds}
        schedules: dict[World, tuple[str, ...]] = {own.start: ()}
        todo = deque([own.start])
        while todo:
            world = todo.popleft()
            wrong = self.verdict(world)
            if wrong:
                return wrong, schedules[world]
            for event, after in [] if own.over(world) else own.successors(world):
                if after not in schedules and own.seen_as(grouped.worlds, after) in allowed:
                    schedules[after] = (*schedules[world], event)
                    todo.append(after)
        return "", ()

    def replay(self, schedule: Iterable[str]) -> list[tuple[str, World]]:
        """Return the events of a schedule and the states that they lead to.

        Raises:
            ValueError: An event is not possible where the schedule has it.
        """
        own = self.worlds.unreduced()
        world, passed = own.start, []
        for number, event in enumerate(schedule):
            nexts = dict(own.successors(world))
            if event not in nexts:
                raise ValueError(
                    f"event {number} of the schedule, {event!r}, is not possible there; "
                    f"possible are: {', '.join(sorted(nexts)) or 'none'}"
                )
            world = nexts[event]
            passed.append((event, world))
        return passed

    def verdict(self, world: World) -> str:
        """Return what is wrong with a state; empty if nothing, or if more can happen there."""
        wrong = self.worlds.wrong(world)
        if not wrong and (self.worlds.over(world) or not self.worlds.successors(world)):
            wrong = self.wrong_at_end(world)
        return wrong

    def wrong_at_end(self, world: World) -> str:
        """Return what is wrong with a state in which nothing more can happen; empty if nothing."""
        end = self.worlds.end(world)
        if end.unfinished:
            who = ", ".join(map(str, end.unfinished))
            return f"nothing more can happen, and not finished: rank {who}"
        return self._judge(end)
