"""What a user holds: an iterable of global batches, and the iterator of one epoch."""

import atexit
import contextlib
import functools
import json
import threading
import time
import weakref
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal

import jax

from jaxiter.agreement import Final, Standing, Terms
from jaxiter.casting import x64_enabled
from jaxiter.deciding import Timing
from jaxiter.engine import Engine
from jaxiter.errors import Note, RendezvousError, note_of
from jaxiter.messages import PROTOCOL, Decision, Hello, Report
from jaxiter.messenger import Messenger
from jaxiter.options import Options
from jaxiter.pipeline import Epoch
from jaxiter.placement import Placement
from jaxiter.places import Place, Registry, strays, turn_away
from jaxiter.protocol import Machine
from jaxiter.raydata import open_source
from jaxiter.rendezvous import Board, Store, service
from jaxiter.stages import BatchStages, schema_words
from jaxiter.stats import EpochStats

_EPOCHS_REMEMBERED = 100
_EXIT_JOIN_S = 3.0
_STRAY_GRACE_S = 2.0

_registry = Registry()
_threads: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()
_running: "weakref.WeakSet[Epoch]" = weakref.WeakSet()


class JaxBatches:
    """An iterable of global batches; each `iter()` begins a new epoch, on all processes.

    Made by `iter_jax_batches`. One epoch runs at a time: `iter()` closes the one before it. Leaving
    the loop early closes its epoch, and so do `close()` and the end of a `with` block.
    """

    def __init__(self, source: Any, options: Options) -> None:
        self._source = source
        self._options = options
        self._open = open_source(source, options)
        self._name = options.name or ""
        self._ordinal = _registry.ordinal(self._name)
        self._epochs = 0
        self._epoch: Epoch | None = None
        self._history: deque[EpochStats] = deque(maxlen=_EPOCHS_REMEMBERED)
        self._lock = threading.Lock()

    def __iter__(self) -> "BatchIterator":
        """Begin a new epoch.

        Settings of JAX that belong to a thread, such as x64, are taken from the one that calls.

        Raises:
            RendezvousError: There are several processes and no way to agree with them.
        """
        with self._lock:
            previous = self._epoch
            if previous is not None:
                previous.close("a new epoch has begun")
            place = Place(self._name, self._ordinal, self._epochs)
            self._epochs += 1
            self._epoch = epoch = _begin(self, place, previous)
            self._history.append(epoch.stats)
        return BatchIterator(epoch)

    def close(self) -> None:
        """End the running epoch, if any; the other processes learn that this one left."""
        with self._lock:
            if self._epoch is not None:
                self._epoch.close()

    def __enter__(self) -> "JaxBatches":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def stats(self) -> tuple[EpochStats, ...]:
        """Return the books of the epochs so far, of the last 100 at most, as they stand now."""
        return tuple(replace(stats) for stats in self._history)


class BatchIterator(Iterator[Any]):
    """The iterator of one epoch. `next()` may be called from any thread.

    When it is no longer referred to, its epoch is closed.
    """

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        weakref.finalize(self, epoch.abandon).atexit = False

    def __next__(self) -> Any:
        """Return the next batch: the tree of the collate function, of global `jax.Array`s.

        Raises:
            StopIteration: The epoch is over, on all processes.
            JaxIterError: It failed, on all processes. Raised again by each further call.
        """
        return self._epoch.next()

    def close(self) -> None:
        """End the epoch; the other processes learn that this one left."""
        self._epoch.close()


def refuse(name: object, error: Exception) -> None:
    """Tell the other processes that this one could not make an iterator that they will wait for."""
    if not jax.distributed.is_initialized():
        return
    known = name if isinstance(name, str) else ""
    note = note_of(error, jax.process_index(), 0)
    _say_once(Place(known, _registry.ordinal(known), 0), Report(Standing(error=note)))


def _begin(batches: JaxBatches, place: Place, previous: Epoch | None) -> Epoch:
    """Start an epoch; what goes wrong in this process goes to all of them."""
    options = batches._options
    process = jax.process_index()
    store = service() if options.synchronize_batches else None
    alone = store is None
    failure: Exception | None = None
    hello: Hello | None = None
    stages: BatchStages | None = None
    row_shards = 1
    try:
        x64 = x64_enabled()
        placement = Placement(options, x64=x64)
        row_shards = placement.split.shards
        stages = BatchStages(batches._open, options, placement, process=process, x64=x64)
        agreed = {**options.agreed(), "protocol": PROTOCOL}
        hello = Hello(agreed, placement.row_shard[0], max(1, options.prefetch_batches))
    except Exception as error:
        if alone:
            raise
        failure = error
    if alone and jax.process_count() > 1 and hello is not None:
        _say_once(place, Report(Standing(), hello))
    timing = Timing.of(options.sync_timeout_s, options.on_peer_loss == "abort")
    machine = Machine(
        hello,
        Terms(options.batch_size, _ends(options), row_shards, ()),
        Timing.alone() if alone else timing,
        time.monotonic(),
        process=0 if alone else process,
        processes=1 if alone else jax.process_count(),
        schema_words=schema_words,
    )
    engine = Engine(machine, str(place), sends=not alone)
    epoch = Epoch(
        engine,
        stages,
        EpochStats(place.epoch),
        process=process,
        batch_size=options.batch_size,
        prefetch_to_device=options.prefetch_to_device,
        drops_tail=options.drop_last,
        label=str(place),
        on_over=functools.partial(_registry.leave, place),
    )
    if failure is not None:
        epoch.fail(note_of(failure, process, 0), failure)
    messenger = None
    if store is not None:
        board = Board(store, place.path, process, jax.process_count())
        find = functools.partial(_find_strays, engine, store, place, timing)
        messenger = Messenger(engine, board, process, str(place), find)
        _registry.enter(place, _identity(batches._source, options, hello), epoch.fail)
    _running.add(epoch)
    epoch.start(messenger, previous)
    _join_at_exit(*epoch.threads)  # they may outlive the epoch
    return epoch


def _ends(options: Options) -> Literal["drop", "pad", "equal"]:
    if options.drop_last:
        return "drop"
    return "pad" if options.pads else "equal"


def _identity(source: Any, options: Options, hello: Hello | None) -> Hashable:
    """Return what tells iterators apart that are in use at the same time."""
    if options.name is not None:
        return options.name
    agreed = None if hello is None else json.dumps(hello.agreed, sort_keys=True)
    return id(source), agreed


def _find_strays(
    engine: Engine, store: Store, place: Place, timing: Timing, missing: tuple[int, ...]
) -> Note | None:
    with engine as machine:
        waited_s = machine.waited_s(engine.clock())
    if waited_s < min(_STRAY_GRACE_S, timing.timeout_s / 4):
        return None
    found = strays(store, place, _registry.live, missing)
    if found is None:
        return None
    note, where = found
    turn_away(store, where, note)
    return note


def _say_once(place: Place, report: Report) -> None:
    """Say the only thing that this process has to say in a place where it will not be."""

    def say() -> None:
        with contextlib.suppress(RendezvousError):
            store = service()
            if store is None:
                return
            process = jax.process_index()
            board = Board(store, place.path, process, jax.process_count())
            if process == 0:
                note = report.standing.error or Note(
                    "MismatchError",
                    "the processes disagree: synchronize_batches is false on process 0. Pass the "
                    "same value on all processes.",
                    0,
                    0,
                )
                board.announce(Decision(0, final=Final(error=note)).text())
            else:
                board.send_report(report.text())
            board.leave()

    # Not here: the service of a process 0 that is stopped does not answer.
    thread = threading.Thread(target=say, name=f"jaxiter notice {place}", daemon=True)
    thread.start()
    _join_at_exit(thread)


def _join_at_exit(*threads: threading.Thread) -> None:
    _threads.update(threads)
    # The latest function registered runs first: before that of jax.distributed, whenever that was.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    """When the program ends: see to it that the last word is out before JAX's service goes."""
    for epoch in list(_running):
        epoch.close("the program ends")
    # A thread that is inside JAX when the interpreter goes would take the process down with it.
    deadline = time.monotonic() + _EXIT_JOIN_S
    threads = sorted(_threads, key=lambda thread: thread.name.startswith("jaxiter reader"))
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
