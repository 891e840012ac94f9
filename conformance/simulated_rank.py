"""One process of `jaxiter` for a simulation: its real protocol machine and engine, without threads.

What each of the iterator's threads would do next is a move. A thread that waits for a condition
moves on only after the engine has notified that condition, so a wake-up that is lost shows.
"""

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from conformance.simulated_engine import SimulatedEngine, key_of, snapshot, wordless
from conformance.simulated_script import SCHEMA, Script, Setting
from harness.simulation import Letter, Post
from jaxiter.errors import Note
from jaxiter.messages import Decision, Hello, Report
from jaxiter.protocol import Machine

_report = functools.lru_cache(1 << 16)(Report.parse)
_decision = functools.lru_cache(1 << 12)(Decision.parse)


Consumer = Literal[
    "busy", "napping", "waiting", "placing", "again", "end", "error", "left", "stuck", "aborted"
]
_IN_LOOP = ("busy", "napping", "waiting", "placing", "again")


@dataclass
class _Threads:
    """Where the threads of one process stand. A move of one that `waits` is not possible."""

    reader: Literal["new", "asking", "waits", "rests", "rested", "hung", "over"] = "new"
    placer: Literal["waits", "woken", "placing", "over"] = "waits"
    consumer: Consumer = "busy"
    woken: bool = False  # the consumer, to find a batch or the end
    held: int = 0  # batches that the reader got
    device: int = 0  # batches on devices that the consumer has not taken
    rows: int = 0  # that the consumer got
    source: str = ""  # how the source ended: its last move
    error: Note | None = field(default=None)
    wrong: str = ""  # what must never be, and was


class SimulatedRank:
    """One process: see `harness.simulation.Rank`.

    Attributes:
        delivered: Rows of its own and schema of each batch that the consumer got.
    """

    def __init__(self, setting: Setting, script: Script, process: int, processes: int) -> None:
        agreed = dict(script.agreed) or {"batch_size": setting.terms.batch_size}
        row_set = setting.terms.row_sets[process] if script.row_set is None else script.row_set
        machine = setting.machine(
            Hello(agreed, row_set, setting.look_ahead),
            setting.terms,
            setting.timing,
            0.0,
            process=process,
            processes=processes,
        )
        self.setting = setting
        self.script = script
        self.process = process
        self.threads = _Threads()
        self.delivered: list[tuple[int, str]] = []
        self.ended_at_s = 0.0
        self.engine = SimulatedEngine(machine)
        self._queue: tuple[tuple[int, str], ...] = ()  # on devices: rows and schema

    @property
    def machine(self) -> Machine:
        """The state machine."""
        return self.engine.machine

    @property
    def finished(self) -> bool:
        """Whether its consumer will do nothing more."""
        if self.threads.consumer == "stuck":
            return not self.setting.timing.abort_on_loss
        return self.script.absent or self.threads.consumer not in _IN_LOOP

    @property
    def listens(self) -> bool:
        """Whether its receiver still runs."""
        return not (self.script.absent or self.engine.stopping or self.machine.final is not None)

    @property
    def wrong(self) -> str:
        """What must never be, and was."""
        return self.threads.wrong

    @property
    def decided(self) -> int | None:
        """On process 0, how many batches it has decided on."""
        decider = self.machine._decider
        return None if decider is None else decider.decided

    @property
    def outcome(self) -> Hashable:
        """Return what has become of it; a judge looks at nothing else, at less before the end."""
        threads, machine = self.threads, self.machine
        source = machine.own_batches, threads.held, threads.source, self.decided
        if not self.finished:
            return source
        note = threads.error
        error = None if note is None else (note.kind, note.process)
        return threads.consumer, error, machine.taken, threads.rows, *source

    def moves(self) -> Sequence[str]:
        """Return what its threads may do next."""
        threads, found = self.threads, []
        if self.script.absent or threads.consumer == "aborted":
            return ()
        if threads.reader == "asking":
            found += self.script.at_source(threads.held)
        elif threads.reader == "rested":
            found += ["rest", "rest short"]
        if threads.placer in ("woken", "placing"):
            found.append("claim" if threads.placer == "woken" else "place")
        if threads.consumer == "busy":
            found += self._consumer_moves()
        elif threads.consumer == "placing":
            found.append("put")
        elif threads.consumer in ("napping", "again") or threads.woken:
            found.append("look")
        if self.engine.outbox:
            found.append("write")
        return found

    def _consumer_moves(self) -> list[str]:
        script, taken = self.script, self.machine.taken
        found = ["leave"] if taken in script.leaves else []
        if taken - 1 in script.stuck:
            return [*found, "stick"]
        if found and not script.stays:
            return found
        # After a step that was long, or short: the placer places ahead, or the consumer itself.
        return [*found, "next", "next soon"] if taken else [*found, "next"]

    def do(self, move: str, now: float) -> Sequence[Post]:
        """Make a move of one of its threads."""
        name, _, detail = move.partition(" ")
        if name in ("batch", "end", "fail", "hang"):
            self._read(name, detail, now)
        elif name == "next":
            self.machine.quick = detail == "soon"
            self.engine.ahead = not self.machine.quick
            self._next(now)
        elif name == "rest":
            self._rest(now, short=bool(detail))
        else:
            getattr(self, f"_{name}")(now)
        return self._after(now)

    def hear(self, letters: Sequence[Letter], now: float) -> Sequence[Post]:
        """Let its receiver take in messages."""
        self.engine.now = now
        with self.engine as machine:
            for sender, text in letters:
                if self.process == 0:
                    machine.report_came(sender, _report(text), now)
                else:
                    machine.decision_came(_decision(text), now)
        return self._after(now)

    def tick(self, now: float) -> Sequence[Post]:
        """Let its sender look at the clock."""
        if self.script.absent or self.threads.consumer == "aborted":
            return ()
        self.engine.now = now
        with self.engine:
            pass
        return self._after(now)

    def wake_at(self, now: float) -> float:
        """Return when its sender looks at the clock."""
        machine = self.machine
        if self.script.absent or self.threads.consumer == "aborted" or machine.settled:
            return float("inf")
        return machine.wake_at(now)

    def copy(self) -> "SimulatedRank":
        """Return an independent copy; what it delivered is not copied."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin.threads = snapshot(self.threads)
        twin.engine = self.engine.copy()
        twin.delivered = []
        return twin

    def describe(self) -> str:
        """Return in a few words where it stands."""
        threads, machine = self.threads, self.machine
        return (
            f"{threads.held} read ({threads.source or threads.reader}), {machine.granted} granted, "
            f"{machine.placed} placed, {machine.taken} taken, consumer {threads.consumer}"
        )

    def _read(self, name: str, detail: str, now: float) -> None:
        """Let the reader get what the source gives."""
        threads, engine, script = self.threads, self.engine, self.script
        engine.now = now
        position = threads.held
        threads.reader = "over"
        if name == "hang":
            threads.reader, threads.source = "hung", name
            return
        with engine as machine:
            if engine.stopping or machine.final is not None:
                return
            if name == "batch":
                threads.held += 1
                if threads.held - machine.placed > machine.look_ahead:
                    threads.wrong = f"{threads.held - machine.placed} batches are held on the host"
                if position == 0:
                    machine.memory_fits(self.setting.most_ahead)
                machine.batch_ready(script.schema(position), script.checksum(position))
                threads.reader = "waits" if machine.has_room else "rests"
                if not machine.has_room:
                    engine.poll()
                    if machine.quick:
                        machine.look_further()
                engine.room.rung = True  # it looks before it waits
            elif name == "fail":
                threads.source = name
                words = f"process {self.process} failed at {position}"
                machine.failed(Note("SourceError", words, self.process, position))
            else:
                rows = int(detail)
                threads.source = f"end {rows}"
                machine.memory_fits(self.setting.most_ahead)
                schema = script.schema(position) if rows else None
                machine.source_ended(rows, schema, script.checksum(position))

    @property
    def _may_look_further(self) -> bool:
        machine = self.machine
        return machine.look_ahead < machine._most_ahead

    def _rest(self, now: float, *, short: bool) -> None:
        """Let the reader go on after a rest; if it was short, more should be held."""
        self.engine.now = now
        with self.engine as machine:
            if short:
                machine.look_further()
            self.threads.reader = "asking"

    @property
    def _placing(self) -> bool:
        return self.threads.placer == "placing" or self.threads.consumer == "placing"

    def _may_place(self, machine: Machine) -> bool:
        return not self._placing and not self.engine.stopping and machine.placed < machine.granted

    def _claim(self, now: float) -> None:
        """Let the placer look for a batch that it may place ahead."""
        threads, engine = self.threads, self.engine
        engine.now = now
        with engine as machine:
            ready = machine.placed < machine.granted
            if engine.stopping or (machine.final is not None and not ready):
                threads.placer = "over"
            elif threads.device < self.setting.prefetch and self._may_place(machine):
                threads.placer = "placing"
            else:
                threads.placer = "waits"
                engine.full = threads.device >= self.setting.prefetch

    def _place(self, now: float) -> None:
        """Let the placer have put a batch on devices."""
        placed = self._carry_out(now)
        self.threads.placer = "waits" if placed else "over"
        self.engine.grants.rung |= placed  # it looks before it waits

    def _put(self, now: float) -> None:
        """Let the consumer have put a batch on devices."""
        self.threads.consumer = "again"
        self._carry_out(now, take=True)

    def _carry_out(self, now: float, *, take: bool = False) -> bool:
        """Put the claimed batch on devices, and take the next one; False if that failed."""
        threads, engine = self.threads, self.engine
        engine.now = now
        position = self.machine.placed
        if position in self.script.unplaced:
            words = f"process {self.process} cannot place {position}"
            with engine as machine:
                machine.failed(Note("InternalError", words, self.process, position), at=position)
                engine.grants.notify_all()
            return False
        with engine as machine:
            if not engine.stopping:
                self._queue += (self._content(machine, position),)
                threads.device += 1
                machine.batch_placed()
                if threads.device > self.setting.prefetch:
                    threads.wrong = f"{threads.device} batches are on devices"
            if take and threads.device:
                self._got(machine, now)
            else:
                engine.ready.notify()
        return True

    def _content(self, machine: Machine, position: int) -> tuple[int, str]:
        """Return the own rows and the schema of the batch at `position`, as it is delivered."""
        threads, script = self.threads, self.script
        size = self.setting.terms.batch_size
        if position < threads.held:
            return size, script.schema(position)
        tail = int(threads.source.partition(" ")[2] or 0)
        if position == threads.held and tail and self.setting.terms.ends != "drop":
            return tail, script.schema(position)
        if self.setting.terms.ends != "pad" or not threads.source.startswith("end"):
            threads.wrong = f"batch {position} is delivered, and not held"
            return 0, ""
        if self.setting.one_schema:
            return 0, SCHEMA
        return 0, machine.padding_schema(position)

    def _next(self, now: float) -> None:
        """Let the consumer ask for the next batch."""
        threads, engine = self.threads, self.engine
        engine.now = now
        with engine as machine:
            if threads.device:
                self._got(machine, now)
            elif self._may_place(machine):
                threads.consumer = "placing"
            else:
                threads.consumer = "waiting"
                engine.consumers = 1
                machine.consumer_waits(now)
                engine.poll()
                may_come = self._may_place(machine) or self._placing
                if not may_come and machine.final is None:
                    threads.consumer = "napping"
                    engine.napping = 1
                else:
                    engine.ready.notify()  # it looks before it waits

    def _look(self, now: float) -> None:
        """Let a consumer that slept, waited or placed a batch look what is there."""
        threads, engine = self.threads, self.engine
        engine.now = now
        if threads.consumer == "again":
            self._next(now)
            return
        with engine as machine:
            threads.woken = False
            engine.napping = 0
            threads.consumer = "waiting"
            engine.poll()
            if threads.device:
                engine.consumers = 0
                self._got(machine, now)
            elif self._may_place(machine):
                engine.consumers = 0
                threads.consumer = "placing"
            elif self._ended(machine):
                engine.consumers = 0
                machine.consumer_got(now, False)
                final = machine.final
                threads.error = None if final is None else final.error
                threads.consumer = "end" if threads.error is None else "error"
                self._over(machine, now)

    def _ended(self, machine: Machine) -> bool:
        over = machine.final is not None and machine.taken >= machine.granted
        return over and not self.engine.untold

    def _got(self, machine: Machine, now: float) -> None:
        threads = self.threads
        threads.consumer = "busy"
        threads.rows += self._queue[0][0]
        if not self.setting.abridged:
            self.delivered.append(self._queue[0])
        self._queue = self._queue[1:]
        threads.device -= 1
        self.engine.full = False
        machine.consumer_got(now, True)
        if self.engine.ahead:
            self.engine.grants.notify()

    def _leave(self, now: float) -> None:
        """Let the consumer leave its loop."""
        self.engine.now = now
        self.threads.consumer = "left"
        with self.engine as machine:
            self._over(machine, now)

    def _over(self, machine: Machine, now: float) -> None:
        machine.left()
        self._queue = ()
        self.threads.device = 0
        self.ended_at_s = now
        self.engine.stop()

    def _stick(self, now: float) -> None:
        """Let the consumer never come back from its step."""
        self.threads.consumer = "stuck"
        self.ended_at_s = now

    def _write(self, now: float) -> None:
        """Let the sender write what is to be sent; `_after` returns it."""
        self.engine.now = now
        self._written = self.engine.outbox.popleft()
        if isinstance(self._written, Decision) and self._written.final is not None:
            self.engine.untold = False
        with self.engine:
            pass

    _written: Report | Decision | None = None

    def _after(self, now: float) -> list[Post]:
        """Let those go on who have been notified, and return what is sent."""
        engine, threads, machine = self.engine, self.threads, self.machine
        stopped = engine.stopping or machine.final is not None
        if engine.room.rung:
            if threads.reader not in ("new", "waits", "rests"):
                pass
            elif stopped:
                threads.reader = "over"
            elif threads.reader == "rests" and machine.has_room and self._may_look_further:
                threads.reader = "rested"
            elif machine.started if threads.reader == "new" else machine.has_room:
                threads.reader = "asking"
        if engine.grants.rung and threads.placer == "waits":
            ready = machine.placed < machine.granted
            if engine.stopping or (machine.final is not None and not ready):
                threads.placer = "over"
            elif threads.device < self.setting.prefetch and self._may_place(machine):
                threads.placer = "woken"
            else:
                engine.full = threads.device >= self.setting.prefetch
        if engine.ready.rung and threads.consumer == "waiting":
            may_place = self._may_place(machine)
            threads.woken = threads.device > 0 or may_place or self._ended(machine)
        engine.room.rung = engine.grants.rung = engine.ready.rung = False
        if engine.aborted and threads.consumer in (*_IN_LOOP, "stuck"):
            threads.consumer = "aborted"
            self.ended_at_s = now
        posts: list[Post] = []
        if self._written is not None:
            posts.append((0 if self.process else None, self._text(self._written)))
            self._written = None
        return posts

    def _text(self, message: Report | Decision) -> str:
        return self._abridged(message).text()

    def _abridged(self, message: Report | Decision) -> Report | Decision:
        """Leave out what the setting says."""
        if isinstance(message, Decision):
            if self.setting.one_schema and message.schemas:
                message = replace(message, schemas=())
            if self.setting.abridged and message.final is not None:
                error = wordless(message.final.error)
                message = replace(message, final=replace(message.final, error=error, dropped=0))
            return message
        standing = message.standing
        if self.setting.one_schema:  # said again, so that no report builds on an earlier one
            standing = replace(standing, schemas=tuple(self.machine._schemas))
        if not self.setting.abridged:
            return replace(message, standing=standing)
        if not standing.left:
            standing = replace(standing, taken=0)
        standing = replace(standing, error=wordless(standing.error))
        waited_s = min(message.waited_s, self.setting.timing.timeout_s)
        return replace(message, standing=standing, seen=0, waited_s=waited_s, full=False)

    def key(self, now: float) -> Hashable:
        """Return what its further behaviour depends on."""
        engine = self.engine
        threads = self.threads
        if self.setting.abridged and threads.error is not None:
            threads = replace(threads, error=wordless(threads.error))
        return (
            tuple(vars(threads).values()),
            self._queue,
            tuple(map(self._text, engine.outbox)),
            (engine.untold, engine.stopping, engine.ahead, engine.full),
            key_of(self.machine, now, self.setting),
        )
