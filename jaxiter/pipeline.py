"""One epoch in the background: a reader fills the host buffer, a placer fills the device queue.

Neither runs a collective or a computation across processes. What may be placed is the engine's to
say. Memory holds at most `look_ahead` host batches and the one being read, `prefetch_to_device`
batches on devices and the one being placed.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from jaxiter.engine import Engine
from jaxiter.errors import ClosedError, JaxIterError, Note, internal_note, note_of
from jaxiter.messenger import Messenger
from jaxiter.protocol import Machine
from jaxiter.stats import EpochStats

MOST_AHEAD = 256  # batches
MOST_AHEAD_BYTES = 64 << 20
_MOST_BYTES_ALONE = 16 << 20  # where there is no agreement to hide
_FIRST_AHEAD = 8  # batches; with fewer, each of the first decisions carries one or two
_FIRST_AHEAD_BYTES = 16 << 20
_STEP_S = 1.0  # longest wait of a consumer between looks at the clock
_QUICK_STEP_S = 0.002  # where news is held back: others set that alarm, and wake nobody for it
_SHORT_REST_S = 0.001  # of a source; if it is woken more often, longer passes cost less
_NAP_S = 0.0003  # of a consumer, before it asks to be woken
_NAP_ENOUGH_S = 0.00045  # of waiting; where it takes longer, a nap is a wake-up more
SHORT_STEP_S = 0.0002  # of a consumer: about what it costs to have another thread place a batch
_FLUSH_S = 0.5  # for the last word to be out when the consumer leaves
_HANDOVER_S = 5.0  # for the last epoch's reader to let go of the source


class Loaded(NamedTuple):
    """A batch in the host buffer.

    Attributes:
        content: What `Stages.place` takes.
        schema: As text.
        rows: Real rows.
        nbytes: Of host memory.
        checksum: Of its rows, where other processes must read the same.
    """

    content: Any
    schema: str
    rows: int
    nbytes: int
    checksum: str | None = None


class Placed(NamedTuple):
    """A batch on devices.

    Attributes:
        batch: Returns it as the consumer gets it; called in the consumer's thread. It may launch
            a computation over all devices.
        rows: Real rows.
        nbytes: On this process's devices, padding included.
    """

    batch: Callable[[], Any]
    rows: int
    nbytes: int


class _Task(NamedTuple):
    """A batch that one thread has taken upon itself to place.

    Attributes:
        position: Of the batch.
        loaded: From the host buffer; None for a batch of padding.
        schema: Of that padding.
    """

    position: int
    loaded: Loaded | None
    schema: str = ""


class Stages(Protocol):
    """What the pipeline moves batches with. Each may raise, and is called from one thread."""

    def open(self) -> Iterator[Loaded]:
        """Return the batches of this process, the last one maybe short; closing it is enough."""

    def place(self, loaded: Loaded, position: int) -> Placed:
        """Put a batch on this process's devices, filled up where it is short."""

    def place_padding(self, schema: str, position: int) -> Placed:
        """Put a batch without a real row on this process's devices."""


def mean_step_s(mean_s: float, away_s: float) -> float:
    """Return the mean of the last steps of a consumer, given the mean before the last of them.

    After several batches at once there may be one long step, as where gradients are accumulated.
    One that is long among many short ones means little: another thread had the interpreter's lock.
    """
    return mean_s + (min(away_s, 7 * SHORT_STEP_S) - mean_s) / 8


def _look(machine: Machine, ahead: int) -> None:
    """Let so many batches be held, where it would be fewer; memory must have room for them."""
    machine.memory_fits(ahead)
    while machine.look_ahead < ahead:
        machine.look_further()


class Epoch:
    """Runs one epoch; `next` may be called from any thread."""

    def __init__(
        self,
        engine: Engine,
        stages: Stages | None,
        stats: EpochStats,
        *,
        process: int,
        batch_size: int,
        prefetch_to_device: int,
        drops_tail: bool,
        label: str,
        on_over: Callable[[], None],
    ) -> None:
        self._on_over = on_over
        self._engine = engine
        self._stages = stages
        self.stats = stats
        self._process = process
        self._batch_size = batch_size
        self._prefetch = prefetch_to_device
        self._drops_tail = drops_tail
        self._messenger: Messenger | None = None
        self._previous_reader: threading.Thread | None = None
        self._host: deque[Loaded] = deque()
        self._device: deque[Placed] = deque()
        self._error: JaxIterError | None = None
        self._rested_at = 0.0
        self._placing = False  # some thread is at it
        self._naps = True  # the consumer, who need not be woken then
        self._step_s = 1.5 * SHORT_STEP_S  # that the consumer is away between batches
        self._most_ahead = 0  # batches that memory allows to hold
        self._over = False
        self._reader = self._thread("reader", label, self._read)
        self._placer = self._thread("placer", label, self._place)

    def start(self, messenger: Messenger | None, previous: "Epoch | None") -> None:
        """Start the threads.

        Args:
            messenger: None if this process decides alone.
            previous: The epoch whose reader may still hold the source.
        """
        self._messenger = messenger
        self._previous_reader = None if previous is None else previous._reader
        with self._engine:
            pass  # the first poll says hello
        if messenger is not None:
            messenger.start()
        self._reader.start()
        self._placer.start()

    def fail(self, note: Note, cause: BaseException | None = None) -> None:
        """Bring in an error from outside; it goes to all processes."""
        with self._engine as machine:
            self._engine.cause = self._engine.cause or cause
            machine.failed(note)

    def next(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: The epoch is over.
            JaxIterError: It failed, the same on each call from then on.
            BaseException: What a signal handler raises, KeyboardInterrupt say. The epoch is closed
                then: nobody can tell whether a batch was taken.
        """
        try:
            return self._next()
        except (StopIteration, JaxIterError):
            raise
        except BaseException as error:
            with self._engine as machine:
                machine.consumer_got(self._engine.clock(), False)
            self.close(f"next() was interrupted by {type(error).__name__}")
            raise

    def _next(self) -> Any:
        engine = self._engine
        while True:
            with engine as machine:
                if machine.taken:
                    self._note_pace(machine)
                if not self._device:
                    self._wait(machine)
                task = None if self._device else self._claim(machine)
                batch = None if task else self._take(machine)
            # Whoever waits for a batch that may be placed places it: that is sooner than to wake
            # the placer, and to be woken by it.
            if task is not None:
                batch = self._carry_out(task, take=True)
            if batch is not None:
                return batch()

    def _note_pace(self, machine: Machine) -> None:
        """Choose who places batches, from how long the consumer was away; the lock is held."""
        self._step_s = mean_step_s(self._step_s, machine.away_s(self._engine.clock()))
        machine.quick = self._step_s <= SHORT_STEP_S
        self._engine.ahead = not machine.quick
        if machine.quick and not machine.has_room:
            self._engine.poll()
            _look(machine, self._most_ahead)

    def _take(self, machine: Machine) -> Callable[[], Any]:
        """Return the batch that is there, or say how it ended; the lock is held."""
        engine = self._engine
        if self._device:
            placed = self._device.popleft()
            engine.full = False
            machine.consumer_got(engine.clock(), True)
            if engine.ahead:
                engine.grants.notify()
            stats = self.stats
            stats.batches_delivered += 1
            stats.rows_delivered += placed.rows
            stats.rows_held -= placed.rows
            stats.bytes_delivered += placed.nbytes
            return placed.batch
        machine.consumer_got(engine.clock(), False)
        if not self._over:
            self._finish(machine)
        if self._error is None:
            raise StopIteration
        raise self._error.with_traceback(None)

    def close(self, why: str = "it was closed") -> None:
        """End the epoch here; returns promptly, whatever the source does."""
        with self._engine as machine:
            if not self._over:
                self._over = True
                self._error = ClosedError(
                    f"this iterator cannot be used any more: {why}. Call iter() for a new epoch.",
                    process=self._process,
                    batch=machine.taken,
                )
                self.stats.stop("closed", dropped=False)
            machine.left()
            self._host.clear()
            self._device.clear()
            self._engine.stop()
        if self._messenger is not None:
            self._messenger.flush(_FLUSH_S)
        self._on_over()

    def abandon(self) -> None:
        """Close the epoch from a finalizer."""
        self._engine.when_free(self.close)

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """All of its threads; the reader, which may be stuck in the source, is the last."""
        messengers = () if self._messenger is None else self._messenger.threads
        return *messengers, self._placer, self._reader

    def _wait(self, machine: Machine) -> None:
        """Wait until a batch is there or may be placed, or the end; the lock is held."""
        engine = self._engine
        if self._may_place(machine):
            return
        if machine.quick and machine.has_room:
            # Until the look-ahead is full, news is held back, and a reader that rests fills none.
            engine.room.notify()
        began = engine.clock()
        engine.consumers += 1
        try:
            machine.consumer_waits(began)
            engine.poll()
            free = not self._may_place(machine) and not self._placing and machine.final is None
            if free and self._naps:
                # Threads that wake each other for every batch spend most of their time on that.
                engine.nap(_NAP_S)
                engine.poll()
            while not (
                self._device or self._over or self._may_place(machine) or self._ended(machine)
            ):
                alarm_s = machine.wake_at(engine.clock()) - engine.clock()
                most_s = _QUICK_STEP_S if machine.quick else _STEP_S
                engine.ready.wait(min(most_s, max(_NAP_S, alarm_s)))
                engine.poll()
        finally:
            engine.consumers -= 1
            waited_s = engine.clock() - began
            self.stats.next_s += waited_s
            self._naps = waited_s < _NAP_ENOUGH_S

    def _ended(self, machine: Machine) -> bool:
        """Whether the consumer has all it will get, and the others know as much."""
        over = machine.final is not None and machine.taken >= machine.granted
        return over and not self._engine.untold

    def _finish(self, machine: Machine) -> None:
        """Take in how the epoch ended; the lock is held."""
        self._over = True
        note = None if machine.final is None else machine.final.error
        if note is None:
            self.stats.stop("ended", dropped=self._drops_tail)
        else:
            self._error = note.error(self._engine.cause)
            self.stats.stop("failed", dropped=False)
        machine.left()
        self._host.clear()
        self._engine.stop()
        self._on_over()

    def _read(self) -> None:
        """Fill the host buffer; the reader's thread."""
        engine, stats = self._engine, self.stats
        with engine as machine:
            while not machine.started and not self._stopped(machine):
                engine.room.wait()
            if self._stopped(machine):
                return
        if self._previous_reader is not None:
            self._previous_reader.join(_HANDOVER_S)
            self._previous_reader = None
        batches: Iterator[Loaded] | None = None
        held = largest = 0
        tail: Loaded | None = None
        try:
            assert self._stages is not None  # otherwise it was not started
            batches = self._stages.open()
            while tail is None:
                began = time.monotonic()
                loaded = next(batches, None)
                stats.source_s += time.monotonic() - began
                if loaded is None:
                    break
                with engine as machine:
                    if self._stopped(machine):
                        return
                    stats.rows_read += loaded.rows
                    stats.rows_held += loaded.rows
                    if loaded.rows < self._batch_size:
                        tail = loaded  # the source has to confirm that it is the last
                        continue
                    self._host.append(loaded)
                    held += 1
                    if loaded.nbytes > largest:
                        largest = loaded.nbytes
                        most_bytes = MOST_AHEAD_BYTES if engine.sends else _MOST_BYTES_ALONE
                        if held == 1 and engine.sends:
                            _look(machine, min(_FIRST_AHEAD, _FIRST_AHEAD_BYTES // largest))
                        self._most_ahead = min(MOST_AHEAD, most_bytes // largest)
                        machine.memory_fits(self._most_ahead)
                    machine.batch_ready(loaded.schema, loaded.checksum)
                    if not machine.has_room:
                        self._rest(machine)
                    if self._stopped(machine):
                        return
            if tail is not None:
                next(batches, None)
            with engine as machine:
                if self._stopped(machine):
                    return
                self._most_ahead = MOST_AHEAD  # padding takes no host memory
                machine.memory_fits(MOST_AHEAD)
                if tail is None:
                    machine.source_ended()
                else:
                    if not self._drops_tail:
                        self._host.append(tail)
                    machine.source_ended(tail.rows, tail.schema, tail.checksum)
        except BaseException as error:  # noqa: BLE001  # whatever it is, all processes must learn it
            self._fail(error, held)
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                self._close_source(close)

    def _rest(self, machine: Machine) -> None:
        """Let the source rest until there is room; the lock is held."""
        engine = self._engine
        engine.poll()  # while there is no room: then nothing is held back
        if machine.quick:
            _look(machine, self._most_ahead)
        while not machine.has_room and not self._stopped(machine):
            engine.room.wait()
        now = engine.clock()
        if now - self._rested_at < _SHORT_REST_S:
            machine.look_further()
        self._rested_at = now

    def _fail(self, error: BaseException, at: int) -> None:
        """Take in that batch `at` cannot be had, and why."""
        engine = self._engine
        note = note_of(error, self._process, at)
        with engine as machine:
            if engine.stopping:
                return
            engine.cause = engine.cause or error
            machine.failed(note)
        if not isinstance(error, JaxIterError):
            engine.log(logging.ERROR, f"the source failed at batch {at}", error)

    def _close_source(self, close: Callable[[], None]) -> None:
        try:
            close()
        except BaseException as error:  # noqa: BLE001  # nobody waits for its data any more
            self._engine.log(logging.WARNING, "the source failed when it was closed", error)

    def _place(self) -> None:
        """Put granted batches on devices ahead of the consumer; the placer's thread."""
        while True:
            with self._engine as machine:
                task = self._next_task(machine)
            if task is None:
                return
            self._carry_out(task)

    def _may_place(self, machine: Machine) -> bool:
        """Whether the next batch may be placed by whoever asks; the lock is held."""
        return not self._placing and not self._engine.stopping and machine.placed < machine.granted

    def _claim(self, machine: Machine) -> _Task | None:
        """Return the next batch to be placed, which is the caller's then; None if there is none.

        One thread places at a time, so that batches stay in order. The lock is held.
        """
        if not self._may_place(machine):
            return None
        self._placing = True
        position = machine.placed
        if self._host:
            return _Task(position, self._host.popleft())
        return _Task(position, None, machine.padding_schema(position))

    def _carry_out(self, task: _Task, *, take: bool = False) -> Callable[[], Any] | None:
        """Place a claimed batch. If that fails, all processes learn it.

        Args:
            task: What to place.
            take: For the consumer, which takes the next batch then, if there is one.
        """
        engine, stages = self._engine, self._stages
        assert stages is not None  # otherwise nothing is granted
        position, loaded, schema = task
        began = engine.clock()
        try:
            if loaded is None:
                placed = stages.place_padding(schema, position)
            else:
                placed = stages.place(loaded, position)
        except BaseException as error:  # all processes must learn it
            if take and not isinstance(error, Exception):
                raise  # the consumer was interrupted
            with engine as machine:
                self._placing = False
                engine.cause = engine.cause or error
                machine.failed(internal_note(error, self._process, position), at=position)
                engine.grants.notify_all()
            engine.log(logging.ERROR, f"batch {position} cannot be put on devices", error)
            return None
        with engine as machine:
            self._placing = False
            if not engine.stopping:
                self.stats.transfer_s += engine.clock() - began
                self._device.append(placed)
                machine.batch_placed()
            if take and self._device:
                return self._take(machine)
            engine.ready.notify()
        return None

    def _next_task(self, machine: Machine) -> _Task | None:
        """Wait until a batch may be placed ahead; None if none will. The lock is held."""
        engine, stats = self._engine, self.stats
        while not engine.stopping:
            ready = machine.placed < machine.granted
            full = len(self._device) >= self._prefetch
            if ready and not full:
                task = self._claim(machine)
                if task is not None:
                    return task
            elif machine.final is not None and not ready:
                return None
            engine.full = full
            undecided = bool(self._host) and not ready
            began = engine.clock()
            engine.grants.wait()
            waited_s = engine.clock() - began
            if undecided:
                stats.agreement_s += waited_s
            elif full:
                stats.consumer_s += waited_s
        return None

    def _stopped(self, machine: Machine) -> bool:
        return self._engine.stopping or machine.final is not None

    def _thread(self, name: str, label: str, work: Callable[[], None]) -> threading.Thread:
        return threading.Thread(target=work, name=f"jaxiter {name} {label}", daemon=True)
