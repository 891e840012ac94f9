"""What may happen next to a few ranks, from any state of all of them and of what is on its way.

A state of the world is the state of each rank and what is on its way between them. Time passes only
when no rank can move and no message is on its way. What a rank does depends on its own state alone,
so each step of a rank is run once, however many worlds it is part of.

Of moves that commute only one order is looked at: in a state where some rank's next moves cannot be
influenced by any other rank (it has a message of everyone who may send it one), only its moves
are tried, since those of others give the same whether before or after (a persistent set). This
keeps every state in which nothing more can happen, and the length of the ways there.

A rank is not influenced either by one that sends it nothing before it has heard of it. What groups
of states may send unasked is taken from the steps that were run before. When all states have been
looked at, it must be right of those that were run meanwhile as well, and then it is right of all:
take the first step, in any order of events, that sends what it should not. What comes before it
commutes with what was looked at instead, so the same step of the same state of that rank was run in
an order that was looked at.

A rank that is stopped differs from one whose turn does not come only when time passes. So it may
stop where none of the others can move: it stands while time passes, whatever it could do itself. If
it moves before time passes again, or looks at the clock with the others, it has gone on.
"""

import copy
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from harness.automaton import Automaton, Explorable, Groups
from harness.simulation import Post

# State of each rank; content of each channel; quiet time.
World = tuple[int, ...]
QUANTUM_S = 1 / 1024  # steps of the clock are whole multiples, so that sums of them are exact
DEAD = -1
# A rank's state is its number, times 4, and: it stood when time passed last; it has gone on since.
STANDS, WENT_ON, FLAGS = 1, 2, 3


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


class Worlds:
    """The states of a few ranks together, from one start on.

    Args:
        ranks: The ranks at their start, at time 0; they are not changed.
        limit_s: Virtual seconds for which all ranks may do nothing but wait. A rank that is not
            finished by then counts as stuck: choose it below the time-outs to have these count as
            deadlocks, above to let them fire.
        upkeep: Moves that a rank which waits makes as well, again and again.
        dies: Ranks that may die at any point.
        stops: A rank that may stop once, at any point, and go on at any later one in the first half
            of `limit_s`, or never.
        gatherers: Ranks that may take all messages that wait for them at once.
        senders: For each rank, who may ever send to it; all others if not given.
        reduce: Whether to look at one order only of moves that commute.
        automata: What is known of ranks from other worlds that they were in; it is added to.

    Attributes:
        count: Of ranks.
        limit: `limit_s`, in quanta.
        channel: The position in a state of what is on its way from one rank to another.
        into: For each rank, who may send to it, and that position.
        reduces: As `reduce`.
        automata: What each rank may do.
        groups: The same, of groups of its states.
        start: The first state.
    """

    def __init__(
        self,
        ranks: Sequence[Explorable],
        *,
        limit_s: float,
        upkeep: Iterable[str] = (),
        dies: Iterable[int] = (),
        stops: int | None = None,
        gatherers: Iterable[int] = (),
        senders: Mapping[int, Iterable[int]] | None = None,
        reduce: bool = True,
        automata: Mapping[int, Automaton] | None = None,
    ) -> None:
        count = self.count = len(ranks)
        everyone = range(count)
        allowed = {r: set(senders[r] if senders else everyone) - {r} for r in everyone}
        self.limit = round(limit_s / QUANTUM_S)
        self.dies, self.stops = frozenset(dies), stops
        self.gatherers = frozenset(gatherers)
        self.reduces = reduce
        self._pairs = [(s, r) for r in everyone for s in sorted(allowed[r])]
        self.channel = {pair: count + i for i, pair in enumerate(self._pairs)}
        self.into = [[(s, self.channel[s, r]) for s in sorted(allowed[r])] for r in everyone]
        self._clock = count + len(self._pairs)
        known = automata or {}
        self.automata = [
            known.get(index) or Automaton(upkeep, judged=index == self.stops) for index in everyone
        ]
        self._contents: list[tuple[str, ...]] = [()]
        self._content_ids: dict[tuple[str, ...], int] = {(): 0}
        self._starts: list[int] = []
        self._sent_first: list[tuple[int, Sequence[Post]]] = []
        for index, rank in enumerate(ranks):
            first = rank.copy()
            self._sent_first.append((index, first.tick(0.0)))
            self._starts.append(self.automata[index].number(first, 0.0))
        self._group([()] * count)

    def grouped(self, groups: Sequence[Sequence[int]]) -> Self:
        """Return what may happen to groups of states of each rank instead of single states.

        Whatever the ranks may come to is found there as well; more may be, if states of one group
        are not alike.
        """
        twin = copy.copy(self)
        twin._group(groups)
        return twin

    @property
    def reduced_rightly(self) -> bool:
        """Whether what was taken to commute does, by all steps of ranks that were run."""
        return not self.reduces or all(groups.still_unasked for groups in self.groups)

    def unreduced(self) -> Self:
        """Return the same, with every order of moves that commute."""
        twin = copy.copy(self)
        twin.reduces = False
        return twin

    def _group(self, groups: Sequence[Sequence[int]]) -> None:
        self.groups = [Groups(a, of) for a, of in zip(self.automata, groups, strict=True)]
        world = [0] * (self._clock + 1)
        for index, start in enumerate(self._starts):
            world[index] = self.groups[index].of(start) << 2
        for index, posts in self._sent_first:
            self._post(world, index, posts)
        self.start: World = tuple(world)

    def successors(self, world: World) -> list[tuple[str, World]]:
        """Return each event that may come next, by name, and the state that it leads to."""
        own: list[list[tuple[str, World]]] = []
        moving = []
        for index in range(self.count):
            state = world[index]
            events: list[tuple[str, World]] = []
            if state != DEAD and not self._stands_for_good(world, index):
                events, silent = self._events(world, index)
                if events or self.groups[index].state(state >> 2).moves:
                    moving.append(index)
                    if events and self.reduces and self._is_alone(world, index, silent):
                        return events + self._dies(world, index)
            own.append(events)
        if moving and self.reduces and not self.gatherers:
            chosen: Iterable[int] = self._persistent(world, own)
        else:
            chosen = range(self.count)
        found: list[tuple[str, World]] = []
        for index in chosen:
            found += own[index]
            found += self._dies(world, index)
        if not moving:
            found += self._wait(world)
        if set(moving) <= {self.stops} and self._may_stand(world):
            found += self._wait(world, self.stops)
        return found

    def _stands_for_good(self, world: World, index: int) -> bool:
        state = world[index]
        return state != DEAD and state & STANDS > 0 and world[self._clock] > self.limit // 2

    def _may_stand(self, world: World) -> bool:
        """Whether the rank that may stop may stand when time passes, and may do otherwise."""
        state = DEAD if self.stops is None else world[self.stops]
        if self.stops is None or state == DEAD or state & WENT_ON:
            return False
        finished = self.groups[self.stops].state(state >> 2).finished
        return not finished and not self._stands_for_good(world, self.stops)

    def _events(self, world: World, index: int) -> tuple[list[tuple[str, World]], bool]:
        """Return what a rank may do next, and whether it sends nothing with that."""
        groups, group = self.groups[index], world[index] >> 2
        found: list[tuple[str, World]] = []
        silent = True
        for move in groups.moves(group):
            silent = silent and not move.posts
            if move.to == group and not move.posts and not (move.counts and world[self._clock]):
                continue  # it leads nowhere else
            after = list(world)
            if move.counts:
                after[self._clock] = 0
            after[index] = move.to << 2 | went_on(world[index])
            if move.posts:
                self._post(after, index, move.posts)
            found.append((f"{index} {move.name}", tuple(after)))
        if groups.state(group).listens:
            for sender, channel in self.into[index]:
                if world[channel]:
                    events, sent = self._hear(world, index, [(sender, channel)])
                    silent = silent and not sent
                    found += events
            if index in self.gatherers:
                found += self._gather(world, index)
        return found, silent

    def _persistent(self, world: World, own: Sequence[object]) -> Iterable[int]:
        """Return ranks such that nothing the others do can influence what these may do now.

        For each of them, everyone who may send it something first, and has not, is one of them. If
        that leaves out anyone, then also a rank that may yet stand.
        """
        best: set[int] = set(range(self.count))
        for first in range(self.count):
            if not own[first]:
                continue
            chosen, todo = {first}, [first]
            while todo:
                index = todo.pop()
                state = world[index]
                if state == DEAD or not self.groups[index].state(state >> 2).listens:
                    continue
                for sender, channel in self.into[index]:
                    if sender not in chosen and self._lacks(world, index, sender, channel):
                        chosen.add(sender)
                        todo.append(sender)
            if self.stops in chosen and self._may_stand(world):
                continue  # where it stands, when others have moved, counts
            if len(chosen) < len(best):
                best = chosen
        return sorted(best)

    def end(self, world: World) -> End:
        """Return a state for a judge."""
        return End(
            tuple(
                None if state == DEAD else self.groups[index].state(state >> 2).rank
                for index, state in enumerate(world[: self.count])
            ),
            frozenset(r for r in range(self.count) if self._stands_for_good(world, r)),
            world[self._clock] * QUANTUM_S,
        )

    def over(self, world: World) -> bool:
        """Whether no rank has anything left to do."""
        return all(
            state == DEAD
            or self._stands_for_good(world, index)
            or self.groups[index].state(state >> 2).finished
            for index, state in enumerate(world[: self.count])
        )

    def outcomes(self, world: World) -> Hashable:
        """Return what has come of each rank; None for one that died or stopped."""
        return tuple(
            None
            if state == DEAD or self._stands_for_good(world, index)
            else self.groups[index].state(state >> 2).rank.outcome
            for index, state in enumerate(world[: self.count])
        )

    def wrong(self, world: World) -> str:
        """Return what must never be, and is; empty if nothing."""
        for index, state in enumerate(world[: self.count]):
            if state != DEAD and self.groups[index].state(state >> 2).wrong:
                return f"rank {index}: {self.groups[index].state(state >> 2).wrong}"
        return ""

    def describe(self, world: World) -> str:
        """Return where each rank stands, and what is on its way."""
        end = self.end(world)
        lines = [
            f"  rank {index}: " + ("dead" if rank is None else rank.describe())
            for index, rank in enumerate(end.ranks)
        ]
        lines += [
            f"  on its way from {s} to {r}: {text}"
            for s, r in self._pairs
            for text in self._contents[world[self.channel[s, r]]]
        ]
        return "\n".join([f"  {end.quiet_s:g} virtual seconds after the last move", *lines])

    def seen_as(self, grouped: Self, world: World) -> World:
        """Return the state of the groups of a state of single states."""
        numbers = [
            state if state == DEAD else grouped.groups[index].of(state >> 2) << 2 | state & FLAGS
            for index, state in enumerate(world[: self.count])
        ]
        return (*numbers, *world[self.count :])

    def _post(self, world: list[int], sender: int, posts: Sequence[Post]) -> None:
        for to, text in posts:
            for receiver in range(self.count) if to is None else (to,):
                channel = self.channel.get((sender, receiver))
                if channel is None or world[receiver] == DEAD:
                    continue
                world[channel] = self.content((*self._contents[world[channel]], text))

    def content(self, texts: tuple[str, ...]) -> int:
        """Return the number of what is on its way in a channel; 0 is nothing."""
        number = self._content_ids.get(texts)
        if number is None:
            number = self._content_ids[texts] = len(self._contents)
            self._contents.append(texts)
        return number

    def texts(self, content: int) -> tuple[str, ...]:
        """Return what is on its way, first things first."""
        return self._contents[content]

    def _hear(
        self, world: World, index: int, channels: Sequence[tuple[int, int]], *, all_: bool = False
    ) -> tuple[list[tuple[str, World]], bool]:
        heard = list(world)
        letters = []
        for sender, channel in channels:
            texts = self._contents[world[channel]]
            taken = len(texts) if all_ else 1
            letters += [(sender, text) for text in texts[:taken]]
            heard[channel] = self.content(texts[taken:])
        event = f"{index} hears {'all' if all_ else channels[0][0]}"
        found: list[tuple[str, World]] = []
        sent = False
        for group, posts in self.groups[index].after(world[index] >> 2, tuple(letters)):
            after = list(heard)
            after[index] = group << 2 | went_on(world[index])
            self._post(after, index, posts)
            sent = sent or bool(posts)
            found.append((event, tuple(after)))
        return found, sent

    def _gather(self, world: World, index: int) -> list[tuple[str, World]]:
        channels = [(s, channel) for s, channel in self.into[index] if world[channel]]
        if sum(len(self._contents[world[channel]]) for _, channel in channels) < 2:
            return []
        return self._hear(world, index, channels, all_=True)[0]

    def _is_alone(self, world: World, index: int, silent: bool) -> bool:
        """Whether nothing that others do can change, or be changed by, what this rank may do now.

        That is so if it has a message from everyone who may still send it one, and if nothing that
        it may send now could be gathered together with other messages, or not.
        """
        if index in self.gatherers or (self.gatherers and not silent):
            return False
        if index == self.stops and self._may_stand(world):
            return False
        if not self.groups[index].state(world[index] >> 2).listens:
            return True
        return not any(self._lacks(world, index, s, channel) for s, channel in self.into[index])

    def _lacks(self, world: World, index: int, sender: int, channel: int) -> bool:
        """Whether another may yet send a rank a first message, whatever that does itself."""
        if world[channel] or world[sender] == DEAD:
            return False
        asked = self.channel.get((index, sender))
        if asked is not None and world[asked]:
            return True
        return self.groups[sender].unasked(world[sender] >> 2) >> index & 1 > 0

    def _dies(self, world: World, index: int) -> list[tuple[str, World]]:
        state = world[index]
        if index not in self.dies or state == DEAD or self.groups[index].state(state >> 2).finished:
            return []
        after = list(world)
        after[index] = DEAD
        for _, channel in self.into[index]:
            after[channel] = 0
        return [(f"{index} dies", tuple(after))]

    def _wait(self, world: World, stands: int | None = None) -> list[tuple[str, World]]:
        """Let time pass until some rank wants to look at the clock, but not one that stands."""
        standing = {
            index
            for index in range(self.count)
            if index == stands or self._stands_for_good(world, index)
        }
        wakes = [
            self.groups[index].state(state >> 2).wakes_s
            for index, state in enumerate(world[: self.count])
            if state != DEAD and index not in standing
        ]
        first_s = min(wakes, default=math.inf)
        if first_s == math.inf:
            return []
        quanta = max(1, math.ceil(first_s / QUANTUM_S))
        if world[self._clock] + quanta > self.limit:
            return []
        waited = list(world)
        waited[self._clock] += quanta
        worlds = [waited]
        for index, state in enumerate(world[: self.count]):
            if state == DEAD:
                continue
            how, flags = ("stand", STANDS) if index in standing else ("wait", went_on(state))
            results = self.groups[index].after(state >> 2, (how, quanta * QUANTUM_S))
            branches = []
            for group, posts in results:
                for before in worlds:
                    after = before if len(results) == 1 else list(before)
                    after[index] = group << 2 | flags
                    self._post(after, index, posts)
                    branches.append(after)
            worlds = branches
        event = f"{quanta * QUANTUM_S:g} s pass"
        if stands is not None:
            event += f", {stands} stands"
        return [(event, tuple(after)) for after in worlds]


def went_on(state: int) -> int:
    """Return the flags of a rank that was in that state and moves, or looks at the clock."""
    return WENT_ON if state & FLAGS else 0
