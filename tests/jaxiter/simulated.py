"""Many state machines in one process, virtual time, and an order of events drawn from a seed."""

import random
from collections import deque
from dataclasses import dataclass, field

from jaxiter.actions import Abort, Announce, Log, Send
from jaxiter.agreement import Terms
from jaxiter.deciding import Timing
from jaxiter.errors import Note
from jaxiter.messages import Decision, Hello, Report
from jaxiter.protocol import Machine

FOREVER_S = 10_000.0


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


class Simulation:
    """Runs the machines of all processes until nothing can happen any more."""

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
        self.random = random.Random(seed)
        self.now = 0.0
        self.plans = plans
        self.terms = terms
        self.prefetch = prefetch_to_device
        count = len(plans)
        self.seen = [Seen() for _ in plans]
        self.messages = 0
        self.decisions: list[Decision] = []
        self.sent: list[Report] = []
        self.machines: list[Machine] = []
        for process in range(count):
            hello = Hello(
                agreed[process] if agreed else {"batch_size": terms.batch_size},
                terms.row_sets[process],
                look_ahead,
            )
            machine = Machine(hello, terms, timing, 0.0, process=process, processes=count)
            machine.memory_fits(most_ahead)
            self.machines.append(machine)
        self.alive = [not plan.absent for plan in plans]
        self.read = [0] * count
        self.on_device: list[deque[tuple[int, str]]] = [deque() for _ in plans]
        self.reading_till = [0.0] * count
        self.source_done = [False] * count
        self.busy_till = [0.0] * count
        self.waiting = [False] * count
        self.done = [plan.absent for plan in plans]
        self.to_zero: list[deque[str]] = [deque() for _ in plans]
        self.inbox: list[deque[str]] = [deque() for _ in plans]

    def run(self) -> list[Seen]:
        """Run to the end; what each process saw."""
        while self.now < FOREVER_S:
            moves = [move for process in range(len(self.plans)) for move in self._moves(process)]
            if moves:
                process, what = self.random.choice(moves)
                getattr(self, f"_do_{what}")(process)
                self.now += self.random.random() * 2e-4
                continue
            if all(done or not alive for done, alive in zip(self.done, self.alive, strict=True)):
                break
            self._let_time_pass()
        return self.seen

    def _let_time_pass(self) -> None:
        times = []
        for process, alive in enumerate(self.alive):
            if not alive:
                continue
            times.append(self.machines[process].wake_at(self.now))
            times.append(self.busy_till[process])
            times.append(self.reading_till[process])
        later = [time for time in times if time > self.now]
        self.now = min(later, default=FOREVER_S) + 1e-6
        for process, alive in enumerate(self.alive):
            if alive:
                self._do_poll(process)

    def _moves(self, process: int) -> list[tuple[int, str]]:
        machine = self.machines[process]
        if not self.alive[process]:
            return []
        found = []
        if machine.started and not self.source_done[process] and machine.has_room:
            stopped = machine.final is not None or self.done[process]
            if not stopped and self.now >= self.reading_till[process]:
                found.append("read")
        ahead = machine.placed - machine.taken
        if machine.placed < machine.granted and ahead < self.prefetch and not self.done[process]:
            found.append("place")
        if not self.done[process] and self.now >= self.busy_till[process]:
            if not self.waiting[process]:
                found.append("want")
            elif machine.taken < machine.placed or (
                machine.taken >= machine.granted and machine.final is not None
            ):
                found.append("take")
        if self.inbox[process]:
            found.append("hear")
        if process == 0 and any(self.to_zero):
            found.append("collect")
        return [(process, what) for what in found]

    def _do_read(self, process: int) -> None:
        machine, plan, at = self.machines[process], self.plans[process], self.read[process]
        if plan.dies_at == at:
            self.alive[process] = False
            return
        schema = max((k for k in plan.schema_changes if k <= at), default=None)
        text = "s" if schema is None else plan.schema_changes[schema]
        checksum = None if plan.checksum is None else f"{plan.checksum}{at}"
        if plan.fail_at == at:
            note = Note("SourceError", f"process {process} failed at {at}", process, at)
            machine.failed(note)
            self.source_done[process] = True
        elif at < plan.full:
            machine.batch_ready(text, checksum)
            self.read[process] += 1
            self.reading_till[process] = self.now + plan.read_s * self.random.random()
        else:
            machine.source_ended(plan.tail, text if plan.tail else None, checksum)
            self.source_done[process] = True
        self._do_poll(process)

    def _do_place(self, process: int) -> None:
        machine = self.machines[process]
        if self.plans[process].place_fails_at == machine.placed:
            machine.failed(
                Note("InternalError", f"process {process} cannot place", process, machine.placed),
                at=machine.placed,
            )
        else:
            self.on_device[process].append(self._batch(process, machine.placed))
            machine.batch_placed()
        self._do_poll(process)

    def _batch(self, process: int, position: int) -> tuple[int, str]:
        plan, machine = self.plans[process], self.machines[process]
        if position >= plan.full and position >= machine.own_batches:
            return 0, machine.padding_schema(position)
        key = max((k for k in plan.schema_changes if k <= position), default=None)
        rows = self.terms.batch_size if position < plan.full else plan.tail
        return rows, "s" if key is None else plan.schema_changes[key]

    def _do_want(self, process: int) -> None:
        plan, machine = self.plans[process], self.machines[process]
        if plan.leave_at == machine.taken:
            machine.left()
            self._finish(process, "left")
        else:
            machine.consumer_waits(self.now)
            self.waiting[process] = True
        self._do_poll(process)

    def _do_take(self, process: int) -> None:
        plan, machine, seen = self.plans[process], self.machines[process], self.seen[process]
        self.waiting[process] = False
        if machine.taken < machine.placed:
            position = machine.taken
            seen.batches.append(self.on_device[process].popleft())
            machine.consumer_got(self.now, True)
            stuck = plan.stuck_at == position
            self.busy_till[process] = (
                FOREVER_S if stuck else self.now + plan.step_s * self.random.random()
            )
        else:
            machine.consumer_got(self.now, False)
            machine.left()
            final = machine.final
            assert final is not None
            seen.error = final.error
            self._finish(process, "end" if final.error is None else "error")
        self._do_poll(process)

    def _finish(self, process: int, end: str) -> None:
        self.seen[process].end = end
        self.seen[process].ended_at_s = self.now
        self.done[process] = True

    def _do_hear(self, process: int) -> None:
        self.machines[process].decision_came(
            Decision.parse(self.inbox[process].popleft()), self.now
        )
        self._do_poll(process)

    def _do_collect(self, zero: int) -> None:
        who = self.random.choice([p for p, box in enumerate(self.to_zero) if box])
        box = self.to_zero[who]
        listing = self.random.random() < 0.3  # finds all that came
        for _ in range(len(box) if listing else 1):
            report = Report.parse(box.popleft())
            self.machines[zero].report_came(who, report, self.now)
        self._do_poll(zero)

    def _do_poll(self, process: int) -> None:
        machine = self.machines[process]
        for action in machine.poll(self.now):
            match action:
                case Send(report):
                    self.messages += 1
                    self.sent.append(report)
                    self.to_zero[process].append(report.text())
                case Announce(decision):
                    self.messages += 1
                    self.decisions.append(decision)
                    for box in self.inbox[1:]:
                        box.append(decision.text())
                case Log(_, message):
                    self.seen[process].logs.append(message)
                case Abort(message):
                    self.seen[process].aborted = True
                    self.seen[process].logs.append(message)
                    self.alive[process] = False
