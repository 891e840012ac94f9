"""One process of `jaxiter` for a simulation: its real protocol machine and engine, without threads.

What each of the iterator's threads would do next is a move. A thread that waits for a condition
moves on only after the engine has notified that condition, so a wake-up that is lost shows.
"""

import functools
import threading
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from harness.simulation import Letter, Post
from jaxiter.agreement import Terms
from jaxiter.deciding import Timing
from jaxiter.engine import Engine
from jaxiter.errors import Note
from jaxiter.messages import Decision, Hello, Report
from jaxiter.protocol import Machine

SCHEMA = "s"

_report = functools.lru_cache(1 << 16)(Report.parse)
_decision = functools.lru_cache(1 << 12)(Decision.parse)


@dataclass(frozen=True)
class Script:
    """What the source and the consumer of one process may do. Where several are possible, any.

    Attributes:
        ends: (full batches, rows of a last short one): where the source may be exhausted.
        fails: Positions of batches instead of which the source may raise.
        hangs: Positions of batches that the source may never give.
        leaves: Numbers of batches after which the consumer may leave its loop.
        stays: Whether the consumer may also go on where it may leave.
        stuck: Positions of batches whose step may never be over.
        unplaced: Positions of batches that cannot be put on a device.
        schemas: (position, schema) wherever the schema changes.
        agreed: Options that must be the same on all processes.
        row_set: Which rows it holds; None: its own.
        checksums: What checksums of its rows begin with; None if there are none.
        absent: It never calls iter().
    """

    ends: frozenset[tuple[int, int]] = frozenset({(0, 0)})
    fails: frozenset[int] = frozenset()
    hangs: frozenset[int] = frozenset()
    leaves: frozenset[int] = frozenset()
    stays: bool = True
    stuck: frozenset[int] = frozenset()
    unplaced: frozenset[int] = frozenset()
    schemas: tuple[tuple[int, str], ...] = ()
    agreed: tuple[tuple[str, Any], ...] = ()
    row_set: int | None = None
    checksums: str | None = None
    absent: bool = False

    def schema(self, position: int) -> str:
        """Return the schema of the batch at `position`."""
        return max(((p, s) for p, s in self.schemas if p <= position), default=(0, SCHEMA))[1]

    def checksum(self, position: int) -> str | None:
        """Return the checksum of the rows of the batch at `position`."""
        return None if self.checksums is None else f"{self.checksums}{position}"

    @functools.cached_property
    def furthest(self) -> int:
        """The position at which the source must have come to its end at the latest."""
        places = [full for full, _ in self.ends] + list(self.fails) + list(self.hangs)
        return max(places, default=0)

    def at_source(self, position: int) -> list[str]:
        """Return what the source may do when asked for the batch at `position`."""
        found = ["batch"] if position < self.furthest else []
        found += [f"end {rows}" for full, rows in sorted(self.ends) if full == position]
        if position in self.fails:
            found.append("fail")
        if position in self.hangs:
            found.append("hang")
        return found


@dataclass(frozen=True)
class Setting:
    """What is the same for all processes of a simulation.

    Attributes:
        terms: Options.
        timing: Seconds; powers of 2, so that sums of them are exact.
        prefetch: Batches on devices ahead of the consumer.
        look_ahead: Batches that may be held at the start.
        most_ahead: Batches that memory has room for.
        abridged: Leave out of messages, and of the states that are told apart, what changes
            nothing but the words of logs and the deletion of keys: in reports, how many batches
            the consumer has taken (unless it left), how many decisions are read, and whether the
            buffer is full; of the end, how many rows are dropped; after it, all that was reported
            before.
        one_schema: Leave out, likewise, what padding is told of the schema, as all is the same.
        machine: The class of the state machine; another one shows that faults of it are found.
    """

    terms: Terms
    timing: Timing
    prefetch: int = 2
    look_ahead: int = 2
    most_ahead: int = 16
    abridged: bool = False
    one_schema: bool = False
    machine: type[Machine] = Machine


class _Bell(threading.Condition):
    """A condition that remembers that it was notified; nobody waits for it in a thread."""

    rung = False

    def notify(self, n: int = 1) -> None:  # noqa: ARG002
        self.rung = True

    def notify_all(self) -> None:
        self.rung = True


class _Engine(Engine):
    """The engine, with a clock that is set and conditions that remember."""

    room: _Bell
    grants: _Bell
    ready: _Bell

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine, "", sends=True)
        self.room, self.grants, self.ready = _Bell(), _Bell(), _Bell()
        self.now = 0.0
        del self.clock  # see the method
        self.texts: list[str] = []  # of the log
        self.aborted = False

    def clock(self) -> float:  # an attribute would hold its owner
        return self.now

    def log(self, level: int, message: str, error: BaseException | None = None) -> None:  # noqa: ARG002
        self.texts.append(message)

    def _abort(self, message: str) -> None:
        self.texts.append(message)
        self.aborted = True

    def copy(self) -> "_Engine":
        twin = object.__new__(_Engine)
        vars(twin).update(vars(self))
        twin.outbox = deque(self.outbox)
        twin.texts = []
        twin._logs = []
        twin._machine = snapshot(self._machine)
        return twin

    @property
    def machine(self) -> Machine:
        return self._machine


T = TypeVar("T")


def snapshot(state: T) -> T:
    """Return a copy of a state machine that shares what does not change."""
    twin = object.__new__(type(state))
    content = vars(twin)
    content.update(vars(state))
    for name in [name for name, value in content.items() if type(value) is list]:
        content[name] = content[name].copy()
    for name in ("_decider", "_aftermath"):
        if content.get(name) is not None:
            content[name] = snapshot(content[name])
    return twin


Consumer = Literal[
    "busy", "napping", "waiting", "placing", "again", "end", "error", "left", "stuck", "aborted"
]
_IN_LOOP = ("busy", "napping", "waiting", "placing", "again")


@dataclass
class _Threads:
    """Where the threads of one process stand. A move of one that `waits` is not possible."""

    reader: Literal["new", "asking", "waits", "hung", "over"] = "new"
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
        self.engine = _Engine(machine)
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
        """Return what has become of it; a judge looks at nothing else."""
        threads, machine = self.threads, self.machine
        note = threads.error
        return (
            threads.consumer,
            None if note is None else (note.kind, note.process),
            machine.taken,
            machine.own_batches,
            threads.rows,
            threads.held,
            threads.source,
            self.decided,
        )

    def moves(self) -> Sequence[str]:
        """Return what its threads may do next."""
        threads, found = self.threads, []
        if self.script.absent or threads.consumer == "aborted":
            return ()
        if threads.reader == "asking":
            found += self.script.at_source(threads.held)
        if threads.placer in ("woken", "placing"):
            found.append("claim" if threads.placer == "woken" else "place")
        if threads.consumer == "busy":
            found += self._consumer_moves()
        elif threads.consumer == "placing":
            found.append("put")
        elif threads.consumer in ("napping", "again") or threads.woken:
            found.append("look")
        if self.process == 0 and self.engine.outbox:
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
            self.engine.ahead = detail != "soon"
            self._next(now)
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
                if not machine.has_room:
                    engine.poll()
                threads.reader = "waits"
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
        """Let the sender of process 0 write a decision; what it says is sent by `_after`."""
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
            if threads.reader not in ("new", "waits"):
                pass
            elif stopped:
                threads.reader = "over"
            elif machine.has_room if threads.reader == "waits" else machine.started:
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
            posts.append((None, self._text(self._written)))
            self._written = None
        if self.process:
            # Each is a message of its own: when it is read, is for the schedule to say.
            posts += [(0, self._text(message)) for message in engine.outbox]
            engine.outbox.clear()
        return posts

    def _text(self, message: Report | Decision) -> str:
        return self._abridged(message).text()

    def _abridged(self, message: Report | Decision) -> Report | Decision:
        """Leave out what the setting says."""
        if isinstance(message, Decision):
            if self.setting.one_schema and message.schemas:
                message = replace(message, schemas=())
            if self.setting.abridged and message.final is not None:
                message = replace(message, final=replace(message.final, dropped=0))
            return message
        standing = message.standing
        if self.setting.one_schema:  # said again, so that no report builds on an earlier one
            standing = replace(standing, schemas=tuple(self.machine._schemas))
        if not self.setting.abridged:
            return replace(message, standing=standing)
        if not standing.left:
            standing = replace(standing, taken=0)
        return replace(message, standing=standing, seen=0, full=False)

    def key(self, now: float) -> Hashable:
        """Return what its further behaviour depends on."""
        engine = self.engine
        outbox = map(self._abridged, engine.outbox if self.process == 0 else ())
        return (
            tuple(vars(self.threads).values()),
            self._queue,
            tuple(outbox),
            (engine.untold, engine.stopping, engine.ahead, engine.full),
            key_of(self.machine, now, self.setting),
        )


_TIMES = frozenset(
    {
        "_waiting_since",
        "_away_since",
        "_heard_at",
        "_sent_at",
        "_news_since",
        "_wake_at",
        "_looked_at",
        "_since",
        "_advanced_at",
        "_spoke_at",
    }
)  # attributes of the machine and its parts that are points in time
_FOR_LOSSES = frozenset({"_away_since"})  # used with `abort_on_loss` alone
_SAME = frozenset({"_hello", "_hellos", "_timing", "_options"})  # never change, or follow


def key_of(state: object, now: float, setting: Setting) -> Hashable:
    """Return what distinguishes a state machine from others in its further behaviour.

    Two equal ones at different times are the same: points in time count from `now`. An attribute
    that is not known here counts as it is, so that none is overlooked.

    Args:
        state: The machine, or a part of it.
        now: Seconds.
        setting: Says what to leave out.
    """
    timing = setting.timing
    longest_s = 4 * timing.timeout_s  # longer ago is all the same
    content = vars(state)
    ended = setting.abridged and content.get("_final") is not None
    found: list[Hashable] = []
    for name, value in content.items():
        if name in _SAME or (name in _FOR_LOSSES and not timing.abort_on_loss):
            continue
        if name in _TIMES:
            if name == "_heard_at" and type(value) is list and not timing.abort_on_loss:
                continue  # of the other processes: words of warnings
            if type(value) is list:
                found.append(tuple([_ago(moment, now, longest_s) for moment in value]))
            else:
                found.append(_ago(value, now, longest_s))
        elif name == "_seen":
            found.append(value > 0)  # how many, matters to the deletion of keys alone
        elif name == "_sent":
            found.append(None if value is None else (value.standing, value.waited_s > 0))
        elif name == "_reports":
            continue  # what they said counts; the rest is for words of warnings
        elif name in ("_told", "_told_schema") and setting.one_schema:
            continue
        elif name == "_decider" and ended and value is not None:
            found.append(value.decided)  # it decides nothing more
        elif name in ("_decider", "_aftermath"):
            found.append(None if value is None else key_of(value, now, setting))
        elif name == "_final" and ended:
            found.append((value.error, value.left))
        else:
            found.append(tuple(value) if type(value) is list else value)
    return tuple(found)


def _ago(moment: float | None, now: float, longest_s: float) -> float | None:
    if moment is None:
        return None
    return round(min(now - moment, longest_s), 6)
