"""What one rank may do, as far as it was asked for: its states by number, the steps between them.

States may be put in groups. A group can do whatever one of its states can, so whatever ranks can
come to, their groups can too; that is all that an exploration of groups relies on. `alike` finds
groups that can do no more than their states: those of a branching bisimulation.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from harness.simulation import Post, Rank

Event = Hashable  # a move by its name; letters heard together; ("wait", s) and ("stand", s)


class Explorable(Rank, Protocol):
    """A rank whose state can be copied and compared."""

    def copy(self) -> Self:
        """Return an independent copy."""

    def key(self, now: float) -> Hashable:
        """Return what its further behaviour depends on; points in time count from `now`."""

    @property
    def wrong(self) -> str:
        """What must never be, and was; empty if nothing."""

    @property
    def outcome(self) -> Hashable:
        """All that a judge looks at."""


@dataclass(slots=True)
class State:
    """One state of a rank; `wakes_s` counts from `now`."""

    rank: Explorable
    now: float
    moves: tuple[str, ...]
    finished: bool
    listens: bool
    wakes_s: float
    wrong: str


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a group: whether it counts as one, where it leads to, and what is sent."""

    name: str
    counts: bool
    to: int
    posts: tuple[Post, ...]


class Automaton:
    """The states of one rank, numbered as they are found; each step is run once.

    Args:
        upkeep: Moves that a rank which waits makes as well, again and again.
        judged: Whether a judge may look at states in which it is not finished.
    """

    def __init__(self, upkeep: Iterable[str] = (), *, judged: bool = False) -> None:
        self.states: list[State] = []
        self.steps: list[dict[Event, tuple[int, tuple[Post, ...]]]] = []
        self._upkeep = frozenset(upkeep)
        self._judged = judged
        self._numbers: dict[Hashable, int] = {}

    def number(self, rank: Explorable, now: float) -> int:
        """Return the number of a state; `rank` is not changed any more."""
        key = rank.key(now)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.states)
            wakes_s = rank.wake_at(now) - now
            moves = tuple(rank.moves())
            state = State(rank, now, moves, rank.finished, rank.listens, wakes_s, rank.wrong)
            self.states.append(state)
            self.steps.append({})
        return number

    def step(self, number: int, event: Event) -> tuple[int, tuple[Post, ...]]:
        """Return the state that an event leads to, and what is sent."""
        known = self.steps[number]
        result = known.get(event)
        if result is None:
            state = self.states[number]
            result = known[event] = self._run(state.rank.copy(), state.now, event)
        return result

    def counts(self, event: Event) -> bool:
        """Whether it is a move, and not one of upkeep."""
        return isinstance(event, str) and event not in self._upkeep

    def label(self, number: int) -> Hashable:
        """Return what states of one group have in common."""
        state = self.states[number]
        judged = state.rank.outcome if state.finished or self._judged else None
        wakes_s = None if state.moves else state.wakes_s
        return bool(state.moves), state.finished, state.listens, state.wrong, judged, wakes_s

    def make_all_moves(self) -> None:
        """Find all states that moves alone lead to."""
        number = 0
        while number < len(self.states):
            for move in self.states[number].moves:
                self.step(number, move)
            number += 1

    def _run(self, rank: Explorable, now: float, event: Event) -> tuple[int, tuple[Post, ...]]:
        posts: Sequence[Post] = ()
        try:
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
        except Exception as error:  # noqa: BLE001  # told with its schedule
            return self._raised(rank, now, f"raised {error!r}"), ()
        return self.number(rank, now), tuple(posts)

    def _raised(self, rank: Explorable, now: float, wrong: str) -> int:
        number = self._numbers.setdefault(("raised", wrong), len(self.states))
        if number == len(self.states):
            self.states.append(State(rank, now, (), False, False, math.inf, wrong))
            self.steps.append({})
        return number


class Groups:
    """The states of an automaton in groups, by number; a state found later is one by itself.

    Args:
        automaton: Whose.
        group_of: The group of each state that is known.
    """

    def __init__(self, automaton: Automaton, group_of: Sequence[int] = ()) -> None:
        self.automaton = automaton
        self._group_of = list(group_of)
        self._members: list[list[int]] = [[] for _ in range(max(group_of, default=-1) + 1)]
        for state, group in enumerate(group_of):
            self._members[group].append(state)
        self._unasked = unasked(automaton, group_of)
        self._moves: dict[int, tuple[Move, ...]] = {}
        self._after: dict[tuple[int, Event], tuple[tuple[int, tuple[Post, ...]], ...]] = {}

    def of(self, state: int) -> int:
        """Return the group of a state."""
        while len(self._group_of) <= state:
            self._members.append([len(self._group_of)])
            self._group_of.append(len(self._members) - 1)
        return self._group_of[state]

    def unasked(self, group: int) -> int:
        """Return the ranks that it may send something before it hears of them: see `unasked`."""
        return self._unasked[group] if group < len(self._unasked) else _ALL

    @property
    def still_unasked(self) -> bool:
        """Whether `unasked` allows for all steps that were run since it was computed as well."""
        self.of(len(self.automaton.states) - 1)
        now = unasked(self.automaton, self._group_of)
        return all(more & ~bits == 0 for more, bits in zip(now, self._unasked, strict=False))

    def state(self, group: int) -> State:
        """Return one state of a group; what a judge looks at is the same for all of them."""
        return self.automaton.states[self._members[group][0]]

    def moves(self, group: int) -> tuple[Move, ...]:
        """Return the moves of its states that differ in more than their name."""
        found = self._moves.get(group)
        if found is None:
            moves: dict[Hashable, Move] = {}
            for member in self._members[group]:
                for name in self.automaton.states[member].moves:
                    to, posts = self.automaton.step(member, name)
                    move = Move(name, self.automaton.counts(name), self.of(to), posts)
                    single = name if len(self._members[group]) == 1 else ""
                    moves.setdefault((single, move.counts, move.to, move.posts), move)
            found = self._moves[group] = tuple(moves.values())
        return found

    def after(self, group: int, event: Event) -> tuple[tuple[int, tuple[Post, ...]], ...]:
        """Return all that another event may lead to: groups, and what is sent."""
        found = self._after.get((group, event))
        if found is None:
            results = (self.automaton.step(member, event) for member in self._members[group])
            found = self._after[group, event] = tuple(
                dict.fromkeys((self.of(to), posts) for to, posts in results)
            )
        return found


_ALL = -1  # bits of all ranks


def unasked(automaton: Automaton, group_of: Sequence[int]) -> list[int]:
    """Return the ranks that each group may send something before it hears of them, as bits.

    To others it sends nothing, whatever moves it makes and whomever else it hears, until it has
    heard of them or time has passed. So it is by the steps that were run.
    """
    size = max(group_of, default=-1) + 1
    found = [0] * size
    before: list[set[tuple[int, int]]] = [set() for _ in range(size)]  # whence, and whom it hears
    for number, group in enumerate(group_of):
        for event, (to, posts) in automaton.steps[number].items():
            heard = 0
            if isinstance(event, tuple):
                if event[0] in ("wait", "stand"):
                    continue
                for sender, _ in event:
                    heard |= 1 << sender
            for receiver, _ in posts:
                found[group] |= (_ALL if receiver is None else 1 << receiver) & ~heard
            before[group_of[to]].add((group, heard))
    todo = [group for group in range(size) if found[group]]
    while todo:
        group = todo.pop()
        for earlier, heard in before[group]:
            bits = found[earlier] | found[group] & ~heard
            if bits != found[earlier]:
                found[earlier] = bits
                todo.append(earlier)
    return found


def alike(automaton: Automaton) -> list[int]:
    """Return the group of each state: as few as can be told apart by nothing but silent moves.

    Two states are alike if what the one may do next (send, hear, wait, end), after silent moves
    that change nothing of what it may do, the other may as well, and comes to a state alike. A
    step that was not asked for counts as impossible: groups are then too many, or too few.
    """
    automaton.make_all_moves()
    steps, coded = automaton.steps, _coded(automaton)
    group_of = _numbered([automaton.label(number) for number in range(len(steps))])
    members: list[list[int]] = [[] for _ in range(max(group_of) + 1)]
    before: list[list[int]] = [[] for _ in steps]  # states that a step leads from
    for number, group in enumerate(group_of):
        members[group].append(number)
        for _, to in coded[number]:
            before[to].append(number)
    order = _successors_first(automaton)
    signatures: list[frozenset[tuple[int, int]]] = [frozenset()] * len(steps)
    due = [True] * len(steps)
    while True:
        touched: set[int] = set()
        for number in order:
            if not due[number]:
                continue
            due[number] = False
            own: set[tuple[int, int]] = set()
            group = group_of[number]
            for label, to in coded[number]:
                if label == _SILENT and group_of[to] == group:
                    own |= signatures[to]
                else:
                    own.add((label, group_of[to]))
            if own != signatures[number]:
                signatures[number] = frozenset(own)
                touched.add(group)
                for earlier in before[number]:
                    due[earlier] = due[earlier] or group_of[earlier] == group
        split = False
        for group in sorted(touched):
            parts: dict[frozenset[tuple[int, int]], list[int]] = {}
            for number in members[group]:
                parts.setdefault(signatures[number], []).append(number)
            kept, *others = sorted(parts.values(), key=len, reverse=True)
            members[group] = kept
            for part in others:
                split = True
                for number in part:
                    group_of[number] = len(members)
                    due[number] = True
                    for earlier in before[number]:
                        due[earlier] = True
                members.append(part)
        if not split:
            return group_of


_SILENT = 0  # the label of a move that counts and sends nothing


def _coded(automaton: Automaton) -> list[list[tuple[int, int]]]:
    """Return each state's steps, as a number for what is seen of it and the state it leads to."""
    labels: dict[Hashable, int] = {(True, ()): _SILENT}
    coded = []
    for known in automaton.steps:
        own = []
        for event, (to, posts) in known.items():
            seen = automaton.counts(event) or event, posts
            own.append((labels.setdefault(seen, len(labels)), to))
        coded.append(own)
    return coded


def _numbered(values: Sequence[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]


def _successors_first(automaton: Automaton) -> list[int]:
    """Return all states, those that moves lead to before those that they lead from."""
    order: list[int] = []
    seen = [False] * len(automaton.states)
    for start in range(len(seen)):
        todo = [(start, False)]
        while todo:
            number, done = todo.pop()
            if done:
                order.append(number)
            elif not seen[number]:
                seen[number] = True
                todo.append((number, True))
                known = automaton.steps[number]
                todo += [(known[move][0], False) for move in automaton.states[number].moves]
    return order
