"""Many processes in one, in virtual time, with what each of them will do said beforehand."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from conformance.simulated_rank import SimulatedRank
from conformance.simulated_script import SCHEMA, Script, Setting
from harness import simulation
from harness.simulation import Drawn, Post
from jaxiter.agreement import Terms
from jaxiter.deciding import Timing
from jaxiter.errors import Note

FOREVER_S = 10_000.0
_SHORT_S = 2e-4  # what a move takes that is not the source's or the consumer's


@dataclass
class Plan:
    """What one process's source and consumer will do.

    Attributes:
        full: Full batches of its source.
        tail: Rows of a last, short batch.
        fail_at: The source raises instead of giving this batch.
        leave_at: The consumer leaves after this many batches.
        dies_at: The process stops for good when its source is asked for this batch.
        absent: It never calls iter().
        schema_changes: Positions and schemas.
        step_s: What each batch takes the consumer.
        read_s: What each batch takes the source.
        stuck_at: The consumer never comes back from the step of this batch.
        place_fails_at: This batch cannot be put on a device.
    """

    full: int = 0
    tail: int = 0
    fail_at: int | None = None
    leave_at: int | None = None
    dies_at: int | None = None
    absent: bool = False
    schema_changes: dict[int, str] = field(default_factory=dict)
    step_s: float = 0.001
    read_s: float = 0.001
    stuck_at: int | None = None
    place_fails_at: int | None = None
    checksum: str | None = None


@dataclass
class Seen:
    """What one process's consumer saw.

    Attributes:
        batches: For each delivered batch, its real rows and its schema.
        end: `end`, `error`, `left`, or `open` if it never learnt.
    """

    batches: list[tuple[int, str]] = field(default_factory=list)
    end: str = "open"
    error: Note | None = None
    ended_at_s: float = 0.0
    logs: list[str] = field(default_factory=list)
    aborted: bool = False


class _Rank(SimulatedRank):
    """A process that may die when its source is asked for a batch, and counts what it sends."""

    sent = 0
    dies_at: int | None = None
    die: Callable[[int], None]

    def do(self, move: str, now: float) -> Sequence[Post]:
        if move.startswith(("batch", "end", "fail")) and self.threads.held == self.dies_at:
            self.die(self.process)
            return ()
        return super().do(move, now)

    def _after(self, now: float) -> list[Post]:
        posts = super()._after(now)
        self.sent += len(posts)
        return posts


class Simulation:
    """Runs the machines of all processes until nothing can happen any more.

    Attributes:
        sent: Reports of all processes.
        decisions: Messages of process 0.
        read: Full batches that each process has read.
    """

    def __init__(
        self,
        plans: list[Plan],
        terms: Terms,
        timing: Timing,
        seed: int,
        *,
        agreed: list[dict[str, object]] | None = None,
        prefetch_to_device: int = 2,
        look_ahead: int = 2,
        most_ahead: int = 16,
    ) -> None:
        self._source = random.Random(seed)
        self._plans = plans
        setting = Setting(terms, timing, prefetch_to_device, look_ahead, most_ahead)
        self._ranks = []
        for process, plan in enumerate(plans):
            script = _script(plan, () if agreed is None else tuple(agreed[process].items()))
            rank = _Rank(setting, script, process, len(plans))
            rank.dies_at = plan.dies_at
            self._ranks.append(rank)

    def run(self) -> list[Seen]:
        """Run to the end; what each process saw."""
        running = simulation.Simulation(
            self._ranks,
            Drawn(self._source, self._source.choice((0.0, _SHORT_S, 10 * _SHORT_S))),
            self._takes_s,
            self._source,
            gatherers=frozenset({0} if self._source.random() < 0.5 else ()),
        )
        for rank in self._ranks:
            rank.die = running.die
        running.run(FOREVER_S)
        self.sent = sum(rank.sent for rank in self._ranks[1:])
        self.decisions = self._ranks[0].sent
        self.read = [rank.threads.held for rank in self._ranks]
        return [_seen(rank) for rank in self._ranks]

    def _takes_s(self, process: int, move: str, source: random.Random) -> float:
        plan = self._plans[process]
        longest_s = _SHORT_S
        if move.startswith(("batch", "end", "fail")):
            longest_s += plan.read_s
        elif move in ("next", "leave"):
            longest_s += plan.step_s
        return source.random() * longest_s + 1e-6


def _script(plan: Plan, agreed: tuple[tuple[str, object], ...]) -> Script:
    def only(position: int | None) -> frozenset[int]:
        return frozenset(() if position is None else (position,))

    return Script(
        ends=frozenset(() if plan.fail_at is not None else ((plan.full, plan.tail),)),
        fails=only(plan.fail_at),
        leaves=only(plan.leave_at),
        stays=False,
        stuck=only(plan.stuck_at),
        unplaced=only(plan.place_fails_at),
        schemas=((0, SCHEMA), *sorted(plan.schema_changes.items())),
        agreed=agreed,
        checksums=plan.checksum,
        absent=plan.absent,
    )


def _seen(rank: _Rank) -> Seen:
    consumer = rank.threads.consumer
    return Seen(
        rank.delivered,
        consumer if consumer in ("end", "error", "left") else "open",
        rank.threads.error,
        rank.ended_at_s,
        rank.engine.texts,
        rank.engine.aborted,
    )
