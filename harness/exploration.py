"""Every order of events of a few ranks: breadth first, so that what is found is found shortest.

A state of the world is the state of each rank and what is on its way between them. Time passes only
when no rank can move and no message is on its way, or `early` times before that. What a rank does
depends on its own state alone, so each step of a rank is run once, however many worlds it is part
of.

Of moves that commute only one order is looked at: in a state where some rank's next moves cannot be
influenced by any other rank (it has a message from everyone who may send it one), only its moves
are tried, since those of others give the same whether before or after (a persistent set). This
keeps every state in which nothing more can happen, and the length of the ways there.
"""

import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from harness.simulation import Post, Rank

QUANTUM_S = 1 / 1024  # steps of the clock are whole multiples, so that sums of them are exact


class Explorable(Rank, Protocol):
    """A rank whose state can be copied and compared."""

    def copy(self) -> Self:
        """Return an independent copy."""

    def key(self, now: float) -> Hashable:
        """Return what its further behaviour depends on; points in time count from `now`."""

    @property
    def wrong(self) -> str:
        """What must never be, and was; empty if nothing."""


@dataclass(frozen=True)
class End:
    """A state in which nothing more happens.

    Attributes:
        ranks: The ranks; None for one that died.
        stopped: Ranks that stopped and did not go on.
        quiet_s: Virtual seconds since some rank made a move.
    """

    ranks: tuple[Explorable | None, ...]
    stopped: frozenset[int]
    quiet_s: float

    @property
    def unfinished(self) -> list[int]:
        """Ranks that should have come to an end, and have not."""
        return [
            index
            for index, rank in enumerate(self.ranks)
            if rank is not None and index not in self.stopped and not rank.finished
        ]


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
        rank_steps: Steps of single ranks that were run.
        seconds: Of wall time.
    """

    states: int
    steps: int
    ends: int
    deepest: int
    complete: bool
    wrong: str
    schedule: tuple[str, ...]
    rank_steps: int
    seconds: float


Judge = Callable[[End], str]
_World = tuple[
    int, ...
]  # state of each rank; content of each channel; quiet time; early steps left
_DEAD = -1
_STOPPED, _HAS_STOPPED, _FLAGS = 1, 2, 3  # a rank's state is its number, times 4, and these


@dataclass(slots=True)
class _Info:
    """What is known of one state of one rank."""

    rank: Explorable
    now: float
    moves: tuple[str, ...]
    finished: bool
    listens: bool
    wakes_s: float  # from now
    wrong: str


class Exploration:
    """All orders of events from one start.

    Args:
        ranks: The ranks at their start, at time 0; they are not changed.
        judge: Says what is wrong with an end that all ranks have come to; empty if nothing.
        limit_s: Virtual seconds for which all ranks may do nothing but wait. A rank that is not
            finished by then counts as stuck: choose it below the time-outs to have these count as
            deadlocks, above to let them fire.
        upkeep: Moves that a rank which waits makes as well, again and again.
        dies: Ranks that may die at any point.
        stops: Ranks that may stop once, at any point, and go on at any later one in the first half
            of `limit_s`, or never.
        early: How often time may pass although something else could happen.
        gatherers: Ranks that may take all messages that wait for them at once.
        senders: For each rank, who may ever send to it; all others if not given.
        reduce: Whether to look at one order only of moves that commute.
    """

    def __init__(
        self,
        ranks: Sequence[Explorable],
        judge: Judge,
        *,
        limit_s: float,
        upkeep: Iterable[str] = (),
        dies: Iterable[int] = (),
        stops: Iterable[int] = (),
        early: int = 0,
        gatherers: Iterable[int] = (),
        senders: Mapping[int, Iterable[int]] | None = None,
        reduce: bool = True,
    ) -> None:
        count = self._count = len(ranks)
        everyone = range(count)
        allowed = {r: set(senders[r] if senders else everyone) - {r} for r in everyone}
        self._judge = judge
        self._upkeep = frozenset(upkeep)
        self._limit = round(limit_s / QUANTUM_S)
        self._dies, self._stops = frozenset(dies), frozenset(stops)
        self._gatherers = frozenset(gatherers)
        self._reduce = reduce and not early
        self._pairs = [(s, r) for r in everyone for s in sorted(allowed[r])]
        self._channel = {pair: count + i for i, pair in enumerate(self._pairs)}
        self._into = [[(s, self._channel[s, r]) for s in sorted(allowed[r])] for r in everyone]
        self._clock = count + len(self._pairs)
        self._ids: list[dict[Hashable, int]] = [{} for _ in ranks]
        self._infos: list[list[_Info]] = [[] for _ in ranks]
        self._steps: list[list[dict[Hashable, tuple[int, Sequence[Post]]]]] = [[] for _ in ranks]
        self._contents: list[tuple[str, ...]] = [()]
        self._content_ids: dict[tuple[str, ...], int] = {(): 0}
        self.rank_steps = 0
        world = [0] * (self._clock + 2)
        world[-1] = early
        posted: list[tuple[int, Sequence[Post]]] = []
        for index, rank in enumerate(ranks):
            first = rank.copy()
            posted.append((index, first.tick(0.0)))
            world[index] = self._intern(index, first, 0.0) << 2
        for index, posts in posted:
            self._post(world, index, posts)
        self.start: _World = tuple(world)

    def run(self, *, most_states: float = math.inf, most_steps_deep: float = math.inf) -> Found:
        """Look at all states, or at so many, or until something is wrong."""
        began = time.perf_counter()
        seen: dict[_World, int] = {self.start: 0}
        parents = [-1]
        events: list[str] = [""]
        frontier = [self.start]
        depth = steps = ends = number = 0
        wrong, at, complete = "", 0, True
        while frontier and not wrong:
            if depth >= most_steps_deep or len(seen) >= most_states:
                complete = False
                break
            following = []
            for world in frontier:
                wrong, at = self._wrong_within(world), number
                if wrong:
                    break
                nexts = [] if self._over(world) else self.successors(world)
                if not nexts:
                    ends += 1
                    wrong = self._wrong_at_end(world)
                    if wrong:
                        break
                steps += len(nexts)
                for event, world_after in nexts:
                    if world_after not in seen:
                        seen[world_after] = len(events)
                        parents.append(number)
                        events.append(event)
                        following.append(world_after)
                number += 1
            else:
                depth += 1
            frontier = following
        schedule: list[str] = []
        while wrong and at > 0:
            schedule.append(events[at])
            at = parents[at]
        return Found(
            len(seen),
            steps,
            ends,
            depth,
            complete and not wrong,
            wrong,
            tuple(reversed(schedule)),
            self.rank_steps,
            time.perf_counter() - began,
        )

    def successors(self, world: _World) -> list[tuple[str, _World]]:
        """Return each event that may come next, by name, and the state that it leads to."""
        own: list[list[tuple[str, _World]]] = []
        moving = silent = False
        for index in range(self._count):
            state = world[index]
            events: list[tuple[str, _World]] = []
            if state != _DEAD and not state & _STOPPED:
                events, silent = self._events(world, index)
                if events:
                    moving = True
                    if self._reduce and self._is_alone(world, index, silent):
                        return events + self._faults(world, index)
            own.append(events)
        if moving and self._reduce and not self._gatherers:
            chosen: Iterable[int] = self._persistent(world, own)
        else:
            chosen = range(self._count)
        found: list[tuple[str, _World]] = []
        for index in chosen:
            found += own[index]
            found += self._faults(world, index)
        found += self._goes_on(world)
        if not moving or world[-1]:
            found += self._wait(world, early=moving)
        return found

    def _events(self, world: _World, index: int) -> tuple[list[tuple[str, _World]], bool]:
        """Return what a rank may do next, and whether it sends nothing with that."""
        number = world[index] >> 2
        info = self._infos[index][number]
        found: list[tuple[str, _World]] = []
        silent = True
        for move in info.moves:
            after, posts = self._step(index, number, move)
            silent = silent and not posts
            moved = move not in self._upkeep
            found.append((f"{index} {move}", self._put(world, index, after, posts, moved)))
        if info.listens:
            for sender, channel in self._into[index]:
                if world[channel]:
                    event, after_world, sent = self._hear(world, index, [(sender, channel)])
                    silent = silent and not sent
                    found.append((event, after_world))
            if index in self._gatherers:
                found += self._gather(world, index)
        return found, silent

    def _persistent(self, world: _World, own: Sequence[object]) -> Iterable[int]:
        """Return ranks such that nothing the others do can influence what these may do now.

        For each of them, everyone who may send it something first, and has not, is one of them.
        """
        best: set[int] = set(range(self._count))
        for first in range(self._count):
            if not own[first]:
                continue
            chosen, todo = {first}, [first]
            while todo:
                index = todo.pop()
                state = world[index]
                if state == _DEAD or not self._infos[index][state >> 2].listens:
                    continue
                for sender, channel in self._into[index]:
                    if not world[channel] and world[sender] != _DEAD and sender not in chosen:
                        chosen.add(sender)
                        todo.append(sender)
            if len(chosen) < len(best):
                best = chosen
        return sorted(best)

    def replay(self, schedule: Iterable[str]) -> list[tuple[str, _World]]:
        """Return the events of a schedule and the states that they lead to.

        Raises:
            ValueError: An event is not possible where the schedule has it.
        """
        reduce, self._reduce = self._reduce, False
        world, passed = self.start, []
        try:
            for number, event in enumerate(schedule):
                nexts = dict(self.successors(world))
                if event not in nexts:
                    raise ValueError(
                        f"event {number} of the schedule, {event!r}, is not possible there; "
                        f"possible are: {', '.join(sorted(nexts)) or 'none'}"
                    )
                world = nexts[event]
                passed.append((event, world))
        finally:
            self._reduce = reduce
        return passed

    def end(self, world: _World) -> End:
        """Return a state for a judge."""
        return End(
            tuple(
                None if state == _DEAD else self._infos[index][state >> 2].rank
                for index, state in enumerate(world[: self._count])
            ),
            frozenset(r for r in range(self._count) if world[r] != _DEAD and world[r] & _STOPPED),
            world[self._clock] * QUANTUM_S,
        )

    def verdict(self, world: _World) -> str:
        """Return what is wrong with a state; empty if nothing, or if more can happen there."""
        wrong = self._wrong_within(world)
        if not wrong and (self._over(world) or not self.successors(world)):
            wrong = self._wrong_at_end(world)
        return wrong

    def describe(self, world: _World) -> str:
        """Return where each rank stands, and what is on its way."""
        end = self.end(world)
        lines = [
            f"  rank {index}: " + ("dead" if rank is None else rank.describe())
            for index, rank in enumerate(end.ranks)
        ]
        lines += [
            f"  on its way from {s} to {r}: {text}"
            for s, r in self._pairs
            for text in self._contents[world[self._channel[s, r]]]
        ]
        return "\n".join([f"  {end.quiet_s:g} virtual seconds after the last move", *lines])

    def _intern(self, index: int, rank: Explorable, now: float) -> int:
        ids = self._ids[index]
        key = rank.key(now)
        state = ids.get(key)
        if state is None:
            state = ids[key] = len(ids)
            wakes_s = rank.wake_at(now) - now
            moves = tuple(rank.moves())
            info = _Info(rank, now, moves, rank.finished, rank.listens, wakes_s, rank.wrong)
            self._infos[index].append(info)
            self._steps[index].append({})
        return state

    def _step(self, index: int, state: int, event: Hashable) -> tuple[int, Sequence[Post]]:
        """Return what a step makes of a state of a rank, and what it sends; run it once."""
        known = self._steps[index][state]
        result = known.get(event)
        if result is None:
            info = self._infos[index][state]
            result = known[event] = self._run(index, info.rank, info.now, event)
            self.rank_steps += 1
        return result

    def _run(
        self, index: int, rank: Explorable, now: float, event: Hashable
    ) -> tuple[int, Sequence[Post]]:
        rank = rank.copy()
        posts: Sequence[Post] = ()
        match event:
            case str():
                posts = rank.do(event, now)
            case ("wait", float(seconds)):
                now += seconds
                posts = rank.tick(now)
            case ("stand", float(seconds)):
                now += seconds
            case tuple():
                posts = rank.hear(event, now)
        return self._intern(index, rank, now), posts

    def _put(
        self, world: _World, index: int, state: int, posts: Sequence[Post], moved: bool
    ) -> _World:
        after = list(world)
        if moved:
            after[self._clock] = 0
        after[index] = state << 2 | world[index] & _FLAGS
        if posts:
            self._post(after, index, posts)
        return tuple(after)

    def _post(self, world: list[int], sender: int, posts: Sequence[Post]) -> None:
        for to, text in posts:
            for receiver in range(self._count) if to is None else (to,):
                channel = self._channel.get((sender, receiver))
                if channel is None or world[receiver] == _DEAD:
                    continue
                world[channel] = self._content((*self._contents[world[channel]], text))

    def _content(self, texts: tuple[str, ...]) -> int:
        number = self._content_ids.get(texts)
        if number is None:
            number = self._content_ids[texts] = len(self._contents)
            self._contents.append(texts)
        return number

    def _hear(
        self, world: _World, index: int, channels: Sequence[tuple[int, int]], *, all_: bool = False
    ) -> tuple[str, _World, bool]:
        after = list(world)
        letters = []
        for sender, channel in channels:
            texts = self._contents[world[channel]]
            taken = len(texts) if all_ else 1
            letters += [(sender, text) for text in texts[:taken]]
            after[channel] = self._content(texts[taken:])
        state, posts = self._step(index, world[index] >> 2, tuple(letters))
        after[index] = state << 2 | world[index] & _FLAGS
        self._post(after, index, posts)
        name = "all" if all_ else str(channels[0][0])
        return f"{index} hears {name}", tuple(after), bool(posts)

    def _gather(self, world: _World, index: int) -> list[tuple[str, _World]]:
        channels = [(s, channel) for s, channel in self._into[index] if world[channel]]
        if sum(len(self._contents[world[channel]]) for _, channel in channels) < 2:
            return []
        event, after, _ = self._hear(world, index, channels, all_=True)
        return [(event, after)]

    def _is_alone(self, world: _World, index: int, silent: bool) -> bool:
        """Whether nothing that others do can change, or be changed by, what this rank may do now.

        That is so if it has a message from everyone who may still send it one, and if nothing that
        it may send now could be gathered together with other messages, or not.
        """
        if index in self._gatherers or (self._gatherers and not silent):
            return False
        if not self._infos[index][world[index] >> 2].listens:
            return True
        return all(
            world[channel] or world[sender] == _DEAD for sender, channel in self._into[index]
        )

    def _faults(self, world: _World, index: int) -> list[tuple[str, _World]]:
        state = world[index]
        found: list[tuple[str, _World]] = []
        if state == _DEAD or state & _STOPPED or self._infos[index][state >> 2].finished:
            return found
        if index in self._dies:
            after = list(world)
            after[index] = _DEAD
            for _, channel in self._into[index]:
                after[channel] = 0
            found.append((f"{index} dies", tuple(after)))
        if index in self._stops and not state & _HAS_STOPPED:
            after = list(world)
            after[index] = state | _STOPPED | _HAS_STOPPED
            found.append((f"{index} stops", tuple(after)))
        return found

    def _goes_on(self, world: _World) -> list[tuple[str, _World]]:
        found: list[tuple[str, _World]] = []
        if world[self._clock] > self._limit // 2:
            return found
        for index in self._stops:
            state = world[index]
            if state != _DEAD and state & _STOPPED:
                after = list(world)
                after[index] = state & ~_STOPPED
                found.append((f"{index} goes on", tuple(after)))
        return found

    def _wait(self, world: _World, *, early: bool) -> list[tuple[str, _World]]:
        """Let time pass until some rank wants to look at the clock."""
        wakes = [
            self._infos[index][state >> 2].wakes_s
            for index, state in enumerate(world[: self._count])
            if state != _DEAD and not state & _STOPPED
        ]
        first_s = min(wakes, default=math.inf)
        if first_s == math.inf:
            return []
        quanta = max(1, math.ceil(first_s / QUANTUM_S))
        if world[self._clock] + quanta > self._limit:
            return []
        after = list(world)
        for index, state in enumerate(world[: self._count]):
            if state == _DEAD:
                continue
            how = "stand" if state & _STOPPED else "wait"
            number, posts = self._step(index, state >> 2, (how, quanta * QUANTUM_S))
            after[index] = number << 2 | state & _FLAGS
            self._post(after, index, posts)
        after[self._clock] += quanta
        after[-1] -= early
        return [(f"{quanta * QUANTUM_S:g} s pass", tuple(after))]

    def _over(self, world: _World) -> bool:
        for_good = world[self._clock] > self._limit // 2
        return all(
            state == _DEAD
            or (for_good if state & _STOPPED else self._infos[index][state >> 2].finished)
            for index, state in enumerate(world[: self._count])
        )

    def _wrong_within(self, world: _World) -> str:
        for index, state in enumerate(world[: self._count]):
            if state != _DEAD and self._infos[index][state >> 2].wrong:
                return f"rank {index}: {self._infos[index][state >> 2].wrong}"
        return ""

    def _wrong_at_end(self, world: _World) -> str:
        end = self.end(world)
        if end.unfinished:
            who = ", ".join(map(str, end.unfinished))
            return f"nothing more can happen, and not finished: rank {who}"
        return self._judge(end)
