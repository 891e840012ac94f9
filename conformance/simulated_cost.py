"""What a decision costs, by the number of processes: messages, bytes and virtual seconds.

Nothing but the agreement takes time here: sources give, devices take and consumers ask at once.
Each process runs the real protocol machine, in its shortest form: a decision comes, all it grants
is placed and taken, the source is read on, a report goes.
"""

import functools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from harness.simulation import Letter, Network, Post, Simulation
from jaxiter.actions import Announce, Send
from jaxiter.agreement import Terms
from jaxiter.deciding import Timing
from jaxiter.messages import Decision, Hello, Report
from jaxiter.protocol import Machine

SCHEMA = "s"

_report = functools.lru_cache(1 << 12)(Report.parse)
_decision = functools.lru_cache(1 << 12)(Decision.parse)
_short = functools.lru_cache(1 << 12)(Report.text)


def _text(report: Report) -> str:
    return _short(report) if report.hello is None else report.text()


@dataclass(frozen=True)
class Service:
    """The coordination service, which works on one request after another.

    Attributes:
        request_s: What a request takes it: to set a key, to answer a get, to list.
        byte_s: What each character takes in addition.
        latency_s: On the way to it, and on the way back.
    """

    request_s: float = 0.00028
    byte_s: float = 1e-9
    latency_s: float = 0.0001


class ServedBy(Network):
    """A network on which all messages go through one coordination service.

    A report is one request to set it; process 0 gets all that wait with one listing. A decision is
    one request to set it, and one for each other process to get it.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._free_at = 0.0
        self._set_at = -1.0

    def arrival(self, sender: int, receiver: int, size: int, now: float) -> float:  # noqa: ARG002
        """See `Network`."""
        if sender:
            return self._serve(size, now)
        if now != self._set_at:
            self._set_at = now
            self._serve(size, now)
        return self._serve(size, now) + self._service.latency_s

    def gathering(self, rank: int, waiting: int, now: float) -> float:  # noqa: ARG002
        """See `Network`."""
        return self._serve(0, now) + self._service.latency_s

    def _serve(self, size: int, now: float) -> float:
        service = self._service
        begins = max(self._free_at, now + service.latency_s)
        self._free_at = begins + service.request_s + size * service.byte_s
        return self._free_at


class Lean:
    """One process whose source, devices and consumer take no time: see `harness.simulation.Rank`.

    It ends with decision number `decisions` that lets batches go.
    """

    def __init__(self, process: int, processes: int, decisions: int, look_ahead: int) -> None:
        hello = Hello({"batch_size": 256}, process, look_ahead)
        terms = Terms(256, "drop", 1, tuple(range(processes)))
        self.machine = Machine(hello, terms, Timing(), 0.0, process=process, processes=processes)
        self.machine.memory_fits(look_ahead)
        self.decided = 0
        self._decisions = decisions
        self._waits = False
        self._process = process

    @property
    def finished(self) -> bool:
        """Whether it has got all its decisions."""
        return self.decided >= self._decisions

    @property
    def listens(self) -> bool:
        """Whether it takes messages."""
        return True

    def moves(self) -> Sequence[str]:
        """Return nothing: it only answers."""
        return ()

    def do(self, move: str, now: float) -> Sequence[Post]:
        """Do nothing."""
        raise NotImplementedError

    def hear(self, letters: Sequence[Letter], now: float) -> Sequence[Post]:
        """Take in messages, and go as far as they let it."""
        if self._process:
            for _, text in letters:
                self.machine.decision_came(_decision(text), now)
        else:
            for sender, text in letters:
                self.machine.report_came(sender, _report(text), now)
        return self._go_on(now)

    def tick(self, now: float) -> Sequence[Post]:
        """Look at the clock."""
        return self._go_on(now)

    def wake_at(self, now: float) -> float:  # noqa: ARG002
        """Return when it wants to look at the clock."""
        return self.machine._wake_at  # as of its last poll, which no event has followed

    def describe(self) -> str:
        """Return in a few words where it stands."""
        return f"{self.machine.granted} batches in {self.decided} decisions"

    def _go_on(self, now: float) -> list[Post]:
        machine = self.machine
        posts: list[Post] = []
        while True:
            granted = machine.granted
            if machine.placed < granted:
                self._waits = False
                self.decided += 1
                while machine.placed < granted:
                    machine.batch_placed()
                    machine.consumer_got(now, True)
            if machine.started:
                while machine.has_room:
                    machine.batch_ready(SCHEMA)
            if not self._waits:  # in one call of next() until a batch comes
                machine.consumer_waits(now)
                self._waits = True
            for action in machine.poll(now):
                if isinstance(action, Send):
                    posts.append((0, _text(action.report)))
                elif isinstance(action, Announce):
                    posts.append((None, action.decision.text()))
            if machine.granted == granted and not (machine.started and machine.has_room):
                return posts


@dataclass(frozen=True)
class Cost:
    """What decisions cost.

    Attributes:
        ranks: Processes.
        decisions: How many decisions let batches go.
        batches: How many batches each process got.
        reports: Sent to process 0, a decision.
        sent: Messages written, a decision.
        received: Messages read, a decision.
        sent_bytes: Of the messages written, a decision.
        received_bytes: Of the messages read, a decision.
        latency_s: Virtual seconds, a decision.
        ran_s: Seconds that the simulation took.
    """

    ranks: int
    decisions: int
    batches: int
    reports: float
    sent: float
    received: float
    sent_bytes: float
    received_bytes: float
    latency_s: float
    ran_s: float


def cost(
    ranks: int, service: Service, *, decisions: int = 100, look_ahead: int = 2, seed: int = 0
) -> Cost:
    """Return what `decisions` decisions cost `ranks` processes.

    Raises:
        RuntimeError: The processes came to a stop before that.
    """
    began = time.perf_counter()
    members = [Lean(process, ranks, decisions, look_ahead) for process in range(ranks)]
    simulation = Simulation(
        members,
        ServedBy(service),
        lambda *_: 0.0,
        random.Random(seed),
        gatherers=frozenset({0}),
    )
    if not simulation.run():
        raise RuntimeError(f"nothing more can happen: {simulation.stuck()}")
    traffic, ran_s = simulation.traffic, time.perf_counter() - began
    announced = (traffic.received - traffic.sent) / (ranks - 2) if ranks > 2 else decisions + 1
    return Cost(
        ranks,
        decisions,
        members[0].machine.taken,
        (traffic.sent - announced) / decisions,
        traffic.sent / decisions,
        traffic.received / decisions,
        traffic.sent_chars / decisions,
        traffic.received_chars / decisions,
        simulation.now / decisions,
        ran_s,
    )


def table(costs: Sequence[Cost]) -> str:
    """Return a table in Markdown."""
    lines = [
        (
            "| processes | messages written | read | bytes written | read | latency, s | batches "
            "| simulated in, s |"
        ),
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {c.ranks:,} | {c.sent:,.1f} | {c.received:,.1f} | {c.sent_bytes:,.0f} "
        f"| {c.received_bytes:,.0f} | {c.latency_s:.4f} | {c.batches / c.decisions:.2f} "
        f"| {c.ran_s:.2f} |"
        for c in costs
    ]
    return "\n".join(lines)
