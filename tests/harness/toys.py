"""Toy ranks for the simulation and the exploration: each is a table of what it does."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.exploration import Exploration
from harness.simulation import Letter, Post


@dataclass
class Toy:
    """Does its steps in order.

    `rest` does nothing, `send N` sends to rank N, `wait` takes one message, `wait N` one of rank N,
    `fall` must never be, `raise` raises. `arm` forgets earlier rings, `look` is the end if there is
    a message, `sleep` lasts until one rings.
    """

    steps: tuple[str, ...]
    at: int = 0
    mail: tuple[int, ...] = ()
    ring: bool = False
    wrong: str = ""

    @property
    def finished(self) -> bool:
        """Whether no step is left."""
        return self.at >= len(self.steps)

    @property
    def listens(self) -> bool:
        """Always."""
        return True

    @property
    def outcome(self) -> Hashable:
        """Where it stands, and what it has not taken."""
        return self.at, self.mail

    def moves(self) -> Sequence[str]:
        """Return the next step, if it may be made."""
        if self.finished:
            return ()
        name, _, who = self.steps[self.at].partition(" ")
        if name == "wait" and (int(who) not in self.mail if who else not self.mail):
            return ()
        if name == "sleep" and not self.ring:
            return ()
        return (self.steps[self.at],)

    def do(self, move: str, now: float) -> Sequence[Post]:  # noqa: ARG002
        """Make the next step."""
        name, _, who = move.partition(" ")
        self.at += 1
        if name == "send":
            return [(int(who), "x")]
        if name == "wait":
            taken = int(who) if who else self.mail[0]
            left = list(self.mail)
            left.remove(taken)
            self.mail = tuple(left)
        elif name == "arm":
            self.ring = False
        elif name == "look" and self.mail:
            self.at = len(self.steps)
        elif name == "raise":
            raise ValueError("no more rows")
        elif name == "fall":
            self.wrong = "it fell"
        return ()

    def hear(self, letters: Sequence[Letter], now: float) -> Sequence[Post]:  # noqa: ARG002
        """Keep who wrote."""
        self.mail += tuple(sender for sender, _ in letters)
        self.ring = True
        return ()

    def tick(self, now: float) -> Sequence[Post]:  # noqa: ARG002
        """Do nothing."""
        return ()

    def wake_at(self, now: float) -> float:  # noqa: ARG002
        """Never."""
        return float("inf")

    def describe(self) -> str:
        """Return the next step."""
        return "finished" if self.finished else f"at {self.steps[self.at]!r}"

    def copy(self) -> "Toy":
        """Return an independent copy."""
        return replace(self)

    def key(self, now: float) -> Hashable:  # noqa: ARG002
        """Return its state."""
        return self.at, self.mail, self.ring, self.wrong


def explore(
    *programs: str,
    reduce: bool = True,
    dies: tuple[int, ...] = (),
    senders: Mapping[int, Iterable[int]] | None = None,
) -> Exploration:
    """Return the exploration of ranks that do `; `-separated steps."""
    toys = [Toy(tuple(program.split("; "))) for program in programs]
    return Exploration(
        toys,
        lambda end: "",  # noqa: ARG005  # a judge that is content
        limit_s=1.0,
        reduce=reduce,
        dies=dies,
        senders=senders,
    )
