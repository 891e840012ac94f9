"""A state machine that several threads share: its lock, its clock, and who is told of what."""

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

from jaxiter.actions import Abort, Announce, Log, Send
from jaxiter.messages import Decision, Report
from jaxiter.protocol import Machine

EXIT_STATUS_ON_LOSS = 75  # "try again" of sysexits.h: a supervisor should start the job anew

logger = logging.getLogger("jaxiter")


class Engine:
    """One machine behind one lock.

    `with engine as machine:` is how an event is brought to it. On leaving the block what the
    machine asks for is queued, and whoever waits for what has changed is woken.

    Attributes:
        sends: Whether there are other processes to send to.
        clock: Seconds; what all times given to the machine come from.
        stopping: Threads should end.
        untold: The last decision is made here, but the others cannot read it yet.
        consumers: Threads that wait for `ready`; they place what may be placed.
        napping: Consumers that will look by themselves in a moment; nobody is woken for them.
        ahead: Whether batches should be placed ahead of the consumer; if not, it is sooner back
            than another thread would be awake, and places them itself.
        full: As many batches as may be are placed ahead.
        room: Notified when the source may be read on, or on a stop.
        grants: Notified when more may be placed, or on a stop.
        ready: Notified when a batch or the end is there for the consumer.
        outgoing: Notified when there is something to send, or on a stop.
        peers: Notified when process 0 must wait for someone else, or on a stop.
        written: Notified when all is sent.
        outbox: The report or decision to be sent next, if any.
        cause: What this process itself raised, to chain the error to.
    """

    def __init__(self, machine: Machine, label: str, *, sends: bool) -> None:
        self.sends = sends
        self.clock = time.monotonic
        self.stopping = False
        self.untold = False
        self.consumers = 0
        self.napping = 0
        self.ahead = True
        self.full = False
        self._lock = threading.RLock()
        # As `threading.Condition` asks of the lock that it is given.
        self._has_lock: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]
        self.room = threading.Condition(self._lock)
        self.grants = threading.Condition(self._lock)
        self.ready = threading.Condition(self._lock)
        self.outgoing = threading.Condition(self._lock)
        self.peers = threading.Condition(self._lock)
        self.written = threading.Condition(self._lock)
        self.outbox: deque[Report | Decision] = deque()
        self.cause: BaseException | None = None
        self._machine = machine
        self._label = label
        self._logs: list[tuple[int, str]] = []
        self._deferred: deque[Callable[[], None]] = deque()

    def __enter__(self) -> Machine:
        # Blocks are never nested. If this thread has the lock already, an interrupt (Ctrl-C) came
        # between taking it and the block that would have given it back: go on from there.
        if not self._has_lock():
            self._lock.acquire()
        return self._machine

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        logs = None
        try:
            if self._has_lock():  # or else an interrupt came where it was lent to others
                self.poll()
            if self._logs:
                logs, self._logs = self._logs, []
        finally:
            if self._has_lock():
                self._lock.release()
        for level, message in logs or ():
            self.log(level, message)
        if self._deferred:
            self._run_deferred()

    def when_free(self, action: Callable[[], None]) -> None:
        """Run `action` once nobody holds the lock, in the thread that frees it or in this one.

        For finalizers, which run wherever they will, in a thread that holds the lock too.
        """
        self._deferred.append(action)
        if not self._has_lock() and self._lock.acquire(blocking=False):
            self._lock.release()
            self._run_deferred()

    def _run_deferred(self) -> None:
        while self._deferred:
            with contextlib.suppress(IndexError):  # another thread took it
                self._deferred.popleft()()

    def poll(self) -> None:
        """Let the machine say what is to be done now; the lock is held."""
        machine = self._machine
        now = self.clock()
        if machine.is_due(now):
            self._poll(now)
        over = machine.final is not None
        if self.outbox or over:
            self.outgoing.notify()
        # The source is read in long passes: to wake its thread for each batch costs more than one.
        if over or machine.runs_low:
            self.room.notify()
        if over:
            self.grants.notify()
            if not self.untold:
                self.ready.notify_all()
        elif self.napping or machine.placed >= machine.granted:
            pass
        elif self.consumers:
            self.ready.notify()
        elif self.ahead and not self.full:
            self.grants.notify()

    def _poll(self, now: float) -> None:
        machine = self._machine
        blocked_by = machine.blocked_by
        for action in machine.poll(now):
            match action:
                case Send(report):
                    self._say(report)
                case Announce(decision):
                    if self.sends:
                        self._say(decision)
                        self.untold = self.untold or decision.final is not None
                case Log(level, message):
                    self._logs.append((level, message))
                case Abort(message):
                    self._abort(message)
        if machine.final is not None or machine.blocked_by is not blocked_by:
            self.peers.notify()

    def _say(self, message: Report | Decision) -> None:
        """Have this sent, together with what is not sent yet."""
        earlier: Any = self.outbox.pop() if self.outbox else None
        self.outbox.append(message if earlier is None else earlier.then(message))

    def nap(self, seconds: float) -> None:
        """Let other threads work in peace for a moment; the lock is held, but not meanwhile."""
        self.napping += 1
        self._lock.release()
        try:
            time.sleep(seconds)
        finally:
            self._lock.acquire()
            self.napping -= 1

    def stop(self) -> None:
        """Tell all threads to end; the lock is held."""
        self.stopping = True
        for condition in (self.room, self.grants, self.ready, self.outgoing, self.peers):
            condition.notify_all()

    def log(self, level: int, message: str, error: BaseException | None = None) -> None:
        """Write to the log, naming the iterator; the lock is not held."""
        logger.log(level, "%s: %s", self._label, message, exc_info=error)

    def _abort(self, message: str) -> None:
        logger.critical("%s: %s", self._label, message)
        for handler in [*logger.handlers, *logging.getLogger().handlers]:
            handler.flush()
        os._exit(EXIT_STATUS_ON_LOSS)
