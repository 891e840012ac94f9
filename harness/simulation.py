"""Many ranks in one process, in virtual time: what each does is its own, when it happens is drawn.

A rank is a state machine without threads, clock or transport. `Simulation` gives it all three: a
queue of events in virtual time, messages that take as long as the network says, moves that take as
long as `delay` says, ranks that stop, go on and die. The same seed gives the same run.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Post = tuple[int | None, str]  # (receiver, text); None: all other ranks
Letter = tuple[int, str]  # (sender, text)
Delay = Callable[[int, str, random.Random], float]  # of a rank's move, in seconds


class Rank(Protocol):
    """One rank's program. Every event returns what it sends, in order."""

    @property
    def finished(self) -> bool:
        """Whether its program is over; it may still have to pass things on."""

    @property
    def listens(self) -> bool:
        """Whether it takes messages."""

    def moves(self) -> Sequence[str]:
        """Return what it may do next by itself; different threads' moves, different outcomes."""

    def do(self, move: str, now: float) -> Sequence[Post]:
        """Make one of its moves."""

    def hear(self, letters: Sequence[Letter], now: float) -> Sequence[Post]:
        """Take messages that arrived together; those of one sender are in order."""

    def tick(self, now: float) -> Sequence[Post]:
        """Look at the clock."""

    def wake_at(self, now: float) -> float:
        """Return when it wants to look at the clock, in seconds; infinity if never."""

    def describe(self) -> str:
        """Return in a few words where it stands."""


@dataclass(frozen=True)
class Fault:
    """What befalls a rank from outside.

    Attributes:
        rank: Whom.
        kind: `die`: it does nothing any more; `stop`: it does nothing for `for_s`.
        at_s: When, in virtual seconds.
        for_s: For how long.
    """

    rank: int
    kind: Literal["die", "stop"]
    at_s: float
    for_s: float = 0.0


class Network(Protocol):
    """How long messages take. May keep state: one is made for each run."""

    def arrival(self, sender: int, receiver: int, size: int, now: float) -> float:
        """Return when a message of `size` characters sent now arrives, in seconds."""

    def gathering(self, rank: int, waiting: int, now: float) -> float:
        """Return when a rank that begins to look for messages now has those that wait for it.

        For a rank that is in the simulation's `gatherers`.
        """


class Drawn:
    """A network on which every message takes a time of its own, drawn evenly from a range.

    Args:
        source: Of random numbers.
        longest_s: A message takes at most this long.
        slow: The share of messages that take ten times as long.
    """

    def __init__(self, source: random.Random, longest_s: float, slow: float = 0.0) -> None:
        self._random = source
        self._longest_s = longest_s
        self._slow = slow

    def arrival(self, sender: int, receiver: int, size: int, now: float) -> float:  # noqa: ARG002
        """See `Network`."""
        takes_s = self._random.random() * self._longest_s
        return now + (10 * takes_s if self._random.random() < self._slow else takes_s)

    def gathering(self, rank: int, waiting: int, now: float) -> float:  # noqa: ARG002
        """See `Network`."""
        return now + self._random.random() * self._longest_s


@dataclass
class Traffic:
    """What was sent.

    Attributes:
        sent: Messages, each counted once however many receive it.
        received: Messages, each counted for each receiver.
        sent_chars: Characters sent; the texts are ASCII, so these are bytes.
        received_chars: Likewise, for each receiver.
    """

    sent: int = 0
    received: int = 0
    sent_chars: int = 0
    received_chars: int = 0


_Event = tuple[float, int, str, int, str | Letter]  # time, number, kind, rank, what


class Simulation:
    """Runs ranks until all are finished, or nothing can happen any more.

    Args:
        ranks: The ranks; each is changed by the run.
        network: How long messages take. Those from one rank to another stay in order.
        delay: How long a rank's move takes from when it becomes possible, in seconds. With 0 it is
            made at once.
        source: Of all else that is drawn.
        faults: What befalls ranks from outside.
        gatherers: Ranks that do not take each message as it comes, but look for all that wait.
        record: Keep a trace of all events.

    Attributes:
        now: Virtual seconds.
        trace: If recorded, of each event: when, whose, and what.
        traffic: What was sent so far.
    """

    def __init__(
        self,
        ranks: Sequence[Rank],
        network: Network,
        delay: Delay,
        source: random.Random,
        *,
        faults: Sequence[Fault] = (),
        gatherers: frozenset[int] = frozenset(),
        record: bool = False,
    ) -> None:
        self.ranks = ranks
        self.now = 0.0
        self.traffic = Traffic()
        self.trace: list[tuple[float, int, str]] = []
        self._record = record
        self._network = network
        self._delay = delay
        self._random = source
        self._gatherers = gatherers
        self._events: list[_Event] = []
        self._number = 0
        self._planned: list[set[str]] = [set() for _ in ranks]
        self._alarms = [float("inf")] * len(ranks)
        self._arrived: dict[tuple[int, int], float] = {}
        self._mail: list[deque[Letter]] = [deque() for _ in ranks]
        self._gathering = [False] * len(ranks)
        self._dead = [False] * len(ranks)
        self._stopped_till = [0.0] * len(ranks)
        for fault in faults:
            self._at(fault.at_s, "fault", fault.rank, f"{fault.kind} {fault.for_s}")
        for rank in range(len(ranks)):
            self._at(0.0, "tick", rank, "")

    @property
    def alive(self) -> list[bool]:
        """For each rank, whether it has not died."""
        return [not dead for dead in self._dead]

    @property
    def all_finished(self) -> bool:
        """Whether every rank that has not died is finished."""
        pairs = zip(self.ranks, self._dead, strict=True)
        return all(dead or rank.finished for rank, dead in pairs)

    def run(self, until_s: float = float("inf")) -> bool:
        """Run until all ranks are finished, or `until_s`, or nothing is left to happen.

        Returns:
            Whether all are finished. If not, `stuck` says who is not.
        """
        unfinished = {r for r, rank in enumerate(self.ranks) if not rank.finished}
        while self._events and unfinished:
            if self._events[0][0] > until_s:
                break
            when, _, kind, rank, what = heapq.heappop(self._events)
            self.now = max(self.now, when)
            self._happen(kind, rank, what)
            if self._dead[rank] or self.ranks[rank].finished:
                unfinished.discard(rank)
        return not unfinished

    def stuck(self) -> str:
        """Return who is not finished, and where each stands."""
        return "; ".join(
            f"rank {r}: {rank.describe()}"
            for r, rank in enumerate(self.ranks)
            if not (self._dead[r] or rank.finished)
        )

    def die(self, rank: int) -> None:
        """Let a rank do nothing any more; what it has sent still arrives."""
        self._dead[rank] = True

    def _at(self, when: float, kind: str, rank: int, what: str | Letter) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, kind, rank, what))

    def _happen(self, kind: str, index: int, what: str | Letter) -> None:
        if self._dead[index]:
            return
        if kind == "fault":
            self._befall(index, str(what))
            return
        if self.now < self._stopped_till[index]:
            self._at(self._stopped_till[index], kind, index, what)
            return
        rank = self.ranks[index]
        posts: Sequence[Post] = ()
        if kind == "do":
            assert isinstance(what, str)
            self._planned[index].discard(what)
            if what in rank.moves():
                self._note(index, what)
                posts = rank.do(what, self.now)
        elif kind == "hear":
            assert isinstance(what, tuple)
            posts = self._deliver(index, what)
            if self._gathering[index]:
                return  # nothing has changed for the rank
        elif kind == "gather":
            self._gathering[index] = False
            letters = tuple(self._mail[index])
            self._mail[index].clear()
            if letters and rank.listens:
                self._note(index, f"hears {len(letters)}")
                posts = rank.hear(letters, self.now)
        else:
            if self._alarms[index] <= self.now:
                self._alarms[index] = float("inf")
            posts = rank.tick(self.now)
        self._after(index, posts)

    def _befall(self, index: int, what: str) -> None:
        kind, for_s = what.split()
        self._note(index, what)
        if kind == "die":
            self.die(index)
        else:
            self._stopped_till[index] = self.now + float(for_s)

    def _deliver(self, index: int, letter: Letter) -> Sequence[Post]:
        if index in self._gatherers:
            self._mail[index].append(letter)
            return ()
        if not self.ranks[index].listens:
            return ()
        self._note(index, f"hears {letter[0]}")
        return self.ranks[index].hear((letter,), self.now)

    def _after(self, index: int, posts: Sequence[Post]) -> None:
        """Send what a rank has to send, and plan what it may do next."""
        rank, planned = self.ranks[index], self._planned[index]
        while True:
            for post in posts:
                self._send(index, post)
            at_once = None
            for move in rank.moves():
                if move in planned:
                    continue
                delay_s = self._delay(index, move, self._random)
                if delay_s <= 0:
                    at_once = move
                    break
                planned.add(move)
                self._at(self.now + delay_s, "do", index, move)
            if at_once is None or self._dead[index]:
                break
            self._note(index, at_once)
            posts = rank.do(at_once, self.now)
        if self._mail[index] and not self._gathering[index] and rank.listens:
            self._gathering[index] = True
            till = self._network.gathering(index, len(self._mail[index]), self.now)
            self._at(till, "gather", index, "")
        alarm = rank.wake_at(self.now)
        if alarm < self._alarms[index]:
            self._alarms[index] = alarm
            self._at(max(alarm, self.now + 1e-6), "tick", index, "")

    def _send(self, sender: int, post: Post) -> None:
        to, text = post
        others = range(len(self.ranks)) if to is None else (to,)
        size = len(text)
        traffic = self.traffic
        traffic.sent += 1
        traffic.sent_chars += size
        letter = (sender, text)
        for receiver in others:
            if receiver == sender:
                continue
            traffic.received += 1
            traffic.received_chars += size
            when = self._network.arrival(sender, receiver, size, self.now)
            when = max(when, self._arrived.get((sender, receiver), 0.0))
            self._arrived[sender, receiver] = when
            self._at(when, "hear", receiver, letter)

    def _note(self, rank: int, what: str) -> None:
        if self._record:
            self.trace.append((self.now, rank, what))
