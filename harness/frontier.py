"""What may happen next in many states of the world at once: `Worlds.successors` for whole arrays.

A state of the world is a column of the integers of a `World`. What a rank may do is looked up in
tables, by the number of its state and of what it hears; the ranks themselves run only when a line
of a table is asked for the first time.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from harness.arrays import Integers, Table, packed, unpacked
from harness.arrays import Words as Keys
from harness.automaton import Event, Groups
from harness.simulation import Post
from harness.worlds import DEAD, FLAGS, QUANTUM_S, STANDS, WENT_ON, Worlds

Which = NDArray[np.bool_]
_STATE, _CONTENT, _CLOCK = 24, 16, 22  # bits; of which a state has 2 flags, and one value is `DEAD`
_RANK, _POSTS = 8, 20  # bits
_NEVER = 1 << _CLOCK


class _Rank:
    """What one rank may do, in tables."""

    def __init__(self, groups: Groups, texts: list[str]) -> None:
        self._groups = groups
        self._texts = texts
        self._posts: dict[tuple[Post, ...], int] = {(): 0}
        # Moves, listens, finished, wrong, when it wakes; of its moves: one leads elsewhere, counts;
        # whom it may send something unasked.
        self.facts = Table(self._facts, [_STATE], 8)
        self.moves = Table(self._moves, [_STATE], 3)  # to, posts, counts
        self.hears = Table(self._hears, [_STATE, _RANK, _CONTENT], 2)  # to, posts
        self.waits = Table(self._waits, [_STATE, 1, _CLOCK], 2)  # to, posts

    def posts(self, number: int) -> tuple[Post, ...]:
        """Return what is sent, by number; 0 is nothing."""
        return list(self._posts)[number]

    def _facts(self, group: int) -> list[tuple[int, ...]]:
        state, moves = self._groups.state(group), self._groups.moves(group)
        wakes = _NEVER
        if state.wakes_s < math.inf:
            wakes = max(1, math.ceil(state.wakes_s / QUANTUM_S))
        elsewhere = any(move.to != group or move.posts for move in moves)
        counts = any(move.counts for move in moves)
        facts = bool(state.moves), state.listens, state.finished, bool(state.wrong)
        return [(*facts, wakes, elsewhere, counts, self._groups.unasked(group))]

    def _moves(self, group: int) -> list[tuple[int, ...]]:
        moves = self._groups.moves(group)
        return [(move.to, self._number(move.posts), move.counts) for move in moves]

    def _hears(self, group: int, sender: int, text: int) -> list[tuple[int, int]]:
        return self.after(group, ((sender, self._texts[text]),))

    def _waits(self, group: int, stands: int, quanta: int) -> list[tuple[int, int]]:
        return self.after(group, ("stand" if stands else "wait", quanta * QUANTUM_S))

    def after(self, group: int, event: Event) -> list[tuple[int, int]]:
        """Return all that an event may lead to: groups, and what is sent, by number."""
        return [(to, self._number(posts)) for to, posts in self._groups.after(group, event)]

    def _number(self, posts: tuple[Post, ...]) -> int:
        return self._posts.setdefault(posts, len(self._posts))


class Frontier:
    """The next states of many states of groups.

    Args:
        worlds: The groups, and all else that decides what may happen. If some ranks are gatherers,
            moves that commute are looked at in every order.
    """

    def __init__(self, worlds: Worlds) -> None:
        self._worlds = worlds
        self._count = worlds.count
        texts: list[str] = []
        self._ranks = [_Rank(groups, texts) for groups in worlds.groups]
        self._heads = Table(_Heads(worlds, texts), [_CONTENT], 2)  # text, content that is left
        self._longer = {
            (s, r): Table(self._appends(s, r), [_CONTENT, _POSTS], 1) for s, r in worlds.channel
        }
        self._gathers = {
            index: Table(self._gathering(index), [_STATE, *[_CONTENT] * len(worlds.into[index])], 2)
            for index in worlds.gatherers
        }
        self._bits = [*[_STATE] * self._count, *[_CONTENT] * len(worlds.channel), _CLOCK]

    def keys(self, worlds: Integers) -> Keys:
        """Return states as keys, of shape (words, states)."""
        shifted = worlds.copy()
        shifted[: self._count] -= DEAD
        return packed(shifted, self._bits)

    def worlds(self, keys: Keys) -> Integers:
        """Return the states of keys, of shape (integers, states)."""
        found = unpacked(keys, self._bits)
        found[: self._count] += DEAD
        return found

    def wrong(self, worlds: Integers) -> Integers:
        """Return the positions of those states that must never be."""
        found = np.zeros(worlds.shape[1], bool)
        for rank, state in zip(self._ranks, worlds, strict=False):
            alive = np.flatnonzero(state != DEAD)
            found[alive] |= rank.facts.row(state[alive] >> 2)[3] > 0
        return np.flatnonzero(found)

    def successors(self, worlds: Integers) -> tuple[Integers, Integers]:
        """Return the states that may come next, of shape (integers, steps), none for those over.

        Returns:
            For each step, the position of the state that it leads from; and where it leads to.
        """
        parts = list(self._steps(worlds, _Now(self._worlds, self._ranks, worlds)))
        of = np.concatenate([part for part, _ in parts])
        return of, np.concatenate([after for _, after in parts], axis=1)

    def _steps(self, worlds: Integers, now: "_Now") -> Iterator[tuple[Integers, Integers]]:
        yield np.zeros(0, np.int64), worlds[:, :0]
        for index in range(self._count):
            chosen = now.chosen[index] & now.runs[index]
            yield self._moves(worlds, index, np.flatnonzero(chosen & now.has_moves[index]))
            for sender, channel in self._worlds.into[index]:
                hears = chosen & now.listens[index] & (worlds[channel] > 0)
                yield self._hears(worlds, index, sender, np.flatnonzero(hears))
            if index in self._gathers:
                yield self._gather(worlds, index, np.flatnonzero(chosen & now.listens[index]))
            befalls = np.flatnonzero(chosen & ~now.finished[index])
            if index in self._worlds.dies:
                yield self._dies(worlds, index, befalls)
        yield self._wait(worlds, now, now.stands, ~now.over & ~now.moving.any(axis=0))
        if self._worlds.stops is not None:
            stands = now.stands.copy()
            stands[self._worlds.stops] = True
            yield self._wait(worlds, now, stands, now.may_stand & ~now.others_move)

    def _moves(self, worlds: Integers, index: int, at: Integers) -> tuple[Integers, Integers]:
        group = worlds[index, at] >> 2
        of, (to, posts, counts) = self._ranks[index].moves.rows(group)
        changes = (to != group[of]) | (posts > 0) | ((counts > 0) & (worlds[-1, at[of]] > 0))
        of, to, posts, counts = at[of[changes]], to[changes], posts[changes], counts[changes]
        after = _with(worlds, index, of, to << 2 | _went_on(worlds[index, of]))
        after[-1, counts > 0] = 0
        self._send(after, index, posts)
        return of, after

    def _hears(
        self, worlds: Integers, index: int, sender: int, at: Integers
    ) -> tuple[Integers, Integers]:
        channel = self._worlds.channel[sender, index]
        text, left = self._heads.row(worlds[channel, at])
        of, (to, posts) = self._ranks[index].hears.rows(
            worlds[index, at] >> 2, np.full(len(at), sender), text
        )
        left, of = left[of], at[of]
        after = _with(worlds, index, of, to << 2 | _went_on(worlds[index, of]))
        after[channel] = left
        self._send(after, index, posts)
        return of, after

    def _gather(self, worlds: Integers, index: int, at: Integers) -> tuple[Integers, Integers]:
        """Let a rank take all messages that wait for it, if these are several, at once."""
        channels = [channel for _, channel in self._worlds.into[index]]
        of, (to, posts) = self._gathers[index].rows(
            worlds[index, at] >> 2, *worlds[channels][:, at]
        )
        of = at[of]
        after = _with(worlds, index, of, to << 2 | _went_on(worlds[index, of]))
        after[channels] = 0
        self._send(after, index, posts)
        return of, after

    def _gathering(self, index: int) -> Callable[..., list[tuple[int, int]]]:
        def gather(group: int, *contents: int) -> list[tuple[int, int]]:
            senders = [sender for sender, _ in self._worlds.into[index]]
            letters = tuple(
                (sender, text)
                for sender, content in zip(senders, contents, strict=True)
                for text in self._worlds.texts(content)
            )
            return self._ranks[index].after(group, letters) if len(letters) > 1 else []

        return gather

    def _dies(self, worlds: Integers, index: int, at: Integers) -> tuple[Integers, Integers]:
        after = _with(worlds, index, at, DEAD)
        for _, channel in self._worlds.into[index]:
            after[channel] = 0
        return at, after

    def _wait(
        self, worlds: Integers, now: "_Now", stands: Which, where: Which
    ) -> tuple[Integers, Integers]:
        """Let time pass until some rank wants to look at the clock, but not those that stand."""
        first = np.where(now.alive & ~stands, now.wakes, _NEVER).min(axis=0)
        of = np.flatnonzero(where & (now.clock + first <= self._worlds.limit))
        after, quanta = worlds[:, of], first[of]
        after[-1] += quanta
        for index in range(self._count):
            state = after[index]
            alive = np.flatnonzero(state != DEAD)
            stand = stands[index, of]
            rows, (to, posts) = self._ranks[index].waits.rows(
                state[alive] >> 2, stand[alive].astype(np.int64), quanta[alive]
            )
            rows = alive[rows]
            passed = after[:, rows]
            flags = np.where(stand[rows], STANDS, _went_on(passed[index]))
            passed[index] = to << 2 | flags
            self._send(passed, index, posts)
            dead = np.flatnonzero(state == DEAD)
            after = np.concatenate([after[:, dead], passed], axis=1)
            of, quanta = (np.concatenate([p[dead], p[rows]]) for p in (of, quanta))
        return of, after

    def _send(self, after: Integers, sender: int, posts: Integers) -> None:
        """Put what is sent in the channels."""
        if not posts.any():
            return
        for (own, receiver), table in self._longer.items():
            if own == sender:
                channel = self._worlds.channel[sender, receiver]
                at = np.flatnonzero((posts > 0) & (after[receiver] != DEAD))
                (after[channel, at],) = table.row(after[channel, at], posts[at])

    def _appends(self, sender: int, receiver: int) -> Callable[[int, int], list[tuple[int]]]:
        def append(content: int, number: int) -> list[tuple[int]]:
            posts = self._ranks[sender].posts(number)
            texts = tuple(text for to, text in posts if to is None or to == receiver)
            return [(self._worlds.content((*self._worlds.texts(content), *texts)),)]

        return append


class _Heads:
    """The first text of each channel's content, by number, and what is left."""

    def __init__(self, worlds: Worlds, texts: list[str]) -> None:
        self._worlds = worlds
        self._numbers: dict[str, int] = {}
        self._texts = texts

    def __call__(self, content: int) -> list[tuple[int, int]]:
        first, *rest = self._worlds.texts(content)
        number = self._numbers.setdefault(first, len(self._texts))
        if number == len(self._texts):
            self._texts.append(first)
        return [(number, self._worlds.content(tuple(rest)))]


class _Now:
    """Where each rank stands in many states, and which ranks' steps are looked at.

    Attributes:
        alive: Whether each rank has not died; shape (ranks, states), like the others.
        stands: Whether it stands for good.
        runs: Whether it does neither.
        moving: Whether it can move, or hear something.
        chosen: Whether its steps are looked at.
        may_stand: Whether the rank that may stop may stand when time passes; shape (states,).
        others_move: Whether one of the other ranks can move.
    """

    def __init__(self, worlds: Worlds, ranks: list[_Rank], states: Integers) -> None:
        count = worlds.count
        size = states.shape[1]
        self.clock = states[-1]
        state = states[:count]
        dead = state == DEAD
        self.alive = ~dead
        self.stands = self.alive & (state & STANDS > 0) & (self.clock > worlds.limit // 2)
        facts = np.zeros((8, count, size), np.int64)
        for index, rank in enumerate(ranks):
            alive = np.flatnonzero(~dead[index])
            facts[:, index, alive] = rank.facts.row(state[index, alive] >> 2)
        self.has_moves, self.listens, self.finished, _, _, elsewhere, counts = facts[:7] > 0
        self.wakes = facts[4]
        self.runs = self.alive & ~self.stands
        self.over = (dead | self.stands | self.finished).all(axis=0)
        self.may_stand = np.zeros(size, bool)
        self.others_move = np.zeros(size, bool)
        has_mail = np.zeros((count, size), bool)
        lacks = np.zeros((count, size), np.int64)  # bits of those who may send it something first
        for index in range(count):
            for sender, channel in worlds.into[index]:
                has_mail[index] |= states[channel] > 0
                may_come = facts[7, sender] >> index & 1 > 0
                if (index, sender) in worlds.channel:
                    may_come |= states[worlds.channel[index, sender]] > 0
                lacking = (states[channel] == 0) & ~dead[sender] & may_come
                lacks[index] |= lacking.astype(np.int64) << sender
        lacks[dead | ~self.listens] = 0
        acts = self.runs & (elsewhere | (counts & (self.clock > 0)) | (self.listens & has_mail))
        self.moving = acts | (self.runs & self.has_moves)
        moving = self.moving.any(axis=0)
        if worlds.stops is not None:
            index = worlds.stops
            self.may_stand = self.runs[index] & (state[index] & WENT_ON == 0)
            self.may_stand &= ~self.finished[index] & ~self.over
            self.others_move = np.delete(self.moving, index, axis=0).any(axis=0)
        self.chosen = np.ones((count, size), bool)
        if worlds.reduces and not worlds.gatherers:
            never = np.zeros((count, size), bool)  # where it stands, when others have moved, counts
            if worlds.stops is not None:
                never[worlds.stops] = self.may_stand
            self.chosen = _persistent(acts, lacks, never) | ~moving
        self.chosen &= ~self.over


def _persistent(acts: Which, lacks: Integers, never: Which) -> Which:
    """Return ranks such that nothing the others do can influence what these may do now.

    They are as few as possible, and none of `never`, or else all.
    """
    count, size = acts.shape
    best = np.full(size, (1 << count) - 1)
    for first in range(count):
        chosen = np.full(size, 1 << first)
        for _ in range(count - 1):
            for index in range(count):
                chosen |= np.where(chosen >> index & 1, lacks[index], 0)
        better = acts[first] & (np.bitwise_count(chosen) < np.bitwise_count(best))
        for index in range(count):
            better &= ~(never[index] & (chosen >> index & 1 > 0))
        best = np.where(better, chosen, best)
    return best >> np.arange(count)[:, None] & 1 > 0


def _went_on(states: Integers) -> Integers:
    return np.where(states & FLAGS, WENT_ON, 0)


def _with(worlds: Integers, index: int, of: Integers, state: Integers | int) -> Integers:
    after = worlds[:, of]
    after[index] = state
    return after
