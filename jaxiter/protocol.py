"""The state machine of one process. Events in, actions out; no threads, no I/O, no clock.

Whoever drives it (threads, a test, a simulation) calls an event's method, then `poll`, and does
what `poll` returns. `granted` says how far batches may be delivered, `final` how it stops.
"""

import logging
import math

from jaxiter.actions import Action, Announce, Log, Send
from jaxiter.aftermath import Aftermath, end_logs, idle_failure_log
from jaxiter.agreement import Changes, Final, SchemaWords, Standing, Terms
from jaxiter.deciding import Decider, Timing
from jaxiter.errors import Note
from jaxiter.messages import Decision, Hello, Report


class Machine:
    """One epoch of one process.

    Attributes:
        started: Whether the source may be touched.
        look_ahead: How many batches this process may hold that are not on a device.
        quick: Whether the consumer is back for the next batch at once. Then what counts is how much
            one message carries; otherwise, that it is early.
        taken: Batches that the consumer has taken.
        placed: Batches that have left the host buffer for a device.
    """

    def __init__(
        self,
        hello: Hello | None,
        terms: Terms,
        timing: Timing,
        now: float,
        *,
        process: int,
        processes: int,
        schema_words: SchemaWords | None = None,
    ) -> None:
        self.started = False
        self.look_ahead = 1
        self.quick = False
        self._least_ahead = 1
        self._most_ahead = 1
        self.taken = 0
        self.placed = 0
        self._hello = hello
        self._terms = terms
        self._process = process
        self._processes = processes
        self._timing = timing
        self._granted = 0
        self._final: Final | None = None
        self._cut: int | None = None  # a batch that was granted and cannot be delivered here
        self._held = 0
        self._ended = False
        self._tail = 0
        self._error: Note | None = None
        self._left = False
        self._left_early = False
        self._schemas: list[tuple[int, str]] = []
        self._new_schemas: list[tuple[int, str]] = []  # not reported yet
        self._new_sums: list[tuple[int, str]] = []
        self._told: list[tuple[int, str]] = []
        self._waiting_since: float | None = None
        self._away_since = now
        self._aftermath: Aftermath | None = None
        self._heard_at = now  # of process 0
        self._patience_s = timing.timeout_s
        self._sent: Report | None = None
        self._sent_at = now
        self._news_since: float | None = None
        self._seen = 0
        self._logs: list[Log] = []
        self._stale = True  # something happened that `poll` has not looked at
        self._wake_at = now
        self._looked_at = now
        self._decider = (
            Decider(terms, timing, now, processes=processes, schema_words=schema_words)
            if process == 0
            else None
        )

    # Events of the source.

    def batch_ready(self, schema: str, checksum: str | None = None) -> None:
        """Take in that one more full batch is held."""
        self._note_batch(schema, checksum)
        self._held += 1
        self._stale = self._stale or self._counts()

    def _counts(self) -> bool:
        """Whether something can come of one more batch that is held, before the clock says so."""
        if self._decider is None:
            return self._news_since is None or self._news_is_wanted(self._looked_at)
        if 0 not in self._decider.blocked_by:  # others must say more first
            return self.quick and not self.has_room
        if self._processes == 1 and self._error is None and not self._left:
            self._granted = self._decider.decided = self._held  # there is nobody to ask
            return False
        # A decision costs some time, so it is for several batches where that is early enough.
        few = self._many if self.quick else self.look_ahead // 8
        if (
            self._held - self._granted >= few
            or (not self._decider.has_news if self.quick else self._granted - self.placed <= few)
            or not self.has_room
            or self._decider.is_waited_for
        ):
            return True
        self._wake_at = min(self._wake_at, self._looked_at + self._hold_s)
        return False

    def source_ended(
        self, tail: int = 0, schema: str | None = None, checksum: str | None = None
    ) -> None:
        """Take in that the source is exhausted.

        Args:
            tail: Rows of a last, short batch.
            schema: The tail's schema; the tail counts as held unless short tails are dropped.
            checksum: The tail's checksum.
        """
        self._stale = True
        if tail and schema is not None and self._terms.ends != "drop":
            self._note_batch(schema, checksum)
        self._tail = tail
        self._ended = True

    def failed(self, note: Note, at: int | None = None) -> None:
        """Take in that no further batch can be held.

        Args:
            note: Why.
            at: The position of a batch that was held but cannot be delivered after all.
        """
        self._stale = True
        if self._error is None:
            self._error = note
        if at is not None and at < self._granted:
            self._cut = at
            self._held = min(self._held, self._granted)  # it will not deliver any more
            self._ended = False
        elif self._final is not None:
            self._logs += idle_failure_log(self._final, self._granted, self._error)

    def broke(self, note: Note) -> None:
        """Take in that the others cannot be reached any more: stop here, alone."""
        self._stale = True
        if self._final is None:
            self._error = self._error or note
            self._final = Final(error=note)  # of which the aftermath would have nothing to say

    # How far it goes.

    @property
    def granted(self) -> int:
        """Batches at positions below this may be delivered here."""
        return self._granted if self._cut is None else self._cut

    @property
    def final(self) -> Final | None:
        """How the epoch stops, once known: after batch `granted - 1`."""
        return self._final if self._cut is None else Final(error=self._error)

    # Events of the consumer.

    def consumer_waits(self, now: float) -> None:
        """Take in that `next()` was called."""
        self._stale = True
        self._waiting_since = now

    def consumer_got(self, now: float, batch: bool) -> None:
        """Take in that `next()` is about to return, with a batch or not."""
        self.taken += batch
        self._waiting_since = None
        self._away_since = now

    def left(self) -> None:
        """Take in that the consumer will not come back: it left, or knows how it ended."""
        self._stale = True
        if not self._left:
            self._left = True
            self._left_early = self.final is None

    def away_s(self, now: float) -> float:
        """Return for how long the consumer has not been in `next()`."""
        return now - self._away_since

    def memory_fits(self, batches: int) -> None:
        """Take in that no more than so many batches should be held, if fewer will do."""
        self._most_ahead = batches
        self.look_ahead = max(self._least_ahead, min(self.look_ahead, batches))

    def look_further(self) -> None:
        """Take in that it would help to hold more."""
        self.look_ahead = max(self.look_ahead, min(2 * self.look_ahead, self._most_ahead))
        self._stale = True

    def batch_placed(self) -> None:
        """Take in that one more batch left the host buffer."""
        self.placed += 1
        self._stale = self._stale or (self._hungry() and self._pads) or self._gets_hungry()

    # Events of the other processes.

    def report_came(self, process: int, report: Report, now: float) -> None:
        """Take in the latest report of another process; only on process 0."""
        self._stale = True
        if self._decider is not None:
            self._decider.heard(process, report, now)

    def decision_came(self, decision: Decision, now: float) -> None:
        """Take in the next decision; not on process 0."""
        self._stale = True
        self._seen += 1
        self._heard_at = now
        self._apply(decision, now)

    # What to do now.

    def is_due(self, now: float) -> bool:
        """Whether `poll` may have something to do."""
        return self._stale or now >= self._wake_at

    def poll(self, now: float) -> list[Action]:
        """Return what is to be done now, in order."""
        if not self.is_due(now):
            return []
        self._stale = False
        self._looked_at = now
        actions = self._act(now)
        self._wake_at = self.wake_at(now)
        return actions

    def _act(self, now: float) -> list[Action]:
        actions: list[Action] = []
        if self._final is None:
            if self._decider is not None:
                self._decider.heard(0, self._report(now), now)
                decision = self._decider.poll(self._least(now), self._hold_s, now)
                if decision is not None:
                    self._apply(decision, now)
                    actions.append(Announce(decision))
            else:
                self._give_up_on_decider(now)
                if self._report_is_due(now):
                    actions.append(Send(self._send(now)))
        elif self._decider is None and self._error is not None and self._unsaid():
            actions.append(Send(self._send(now)))  # gave up alone: the others should know
        if self._aftermath is not None and not self._left:
            waits = self._waiting_since is not None
            actions += self._aftermath.watch(self.taken, waits, self._away_since, now)
        actions += self._logs
        self._logs.clear()
        return actions

    def wake_at(self, now: float) -> float:
        """Return when `poll` may have something to do without further events, in seconds."""
        if self._final is not None:
            return now + 0.5
        if self._decider is not None:
            return self._decider.wake_at(self._hold_s)
        times = [self._sent_at + self._timing.beat_s]
        if self._news_since is not None:
            times.append(self._news_since + self._hold_s)
        if self._waiting_since is not None and self._starves() and not self._wait_is_told():
            times.append(self._waiting_since + self._wait_report_s())
        return max(min(times), now + 0.001)

    @property
    def settled(self) -> bool:
        """Whether nothing will come of `poll` any more."""
        if self._left:
            return self._final is not None or self._decider is None
        return self._final is not None and (self._aftermath is None or self._aftermath.settled)

    @property
    def blocked_by(self) -> tuple[int, ...]:
        """On process 0, the processes whose reports it waits for."""
        return () if self._decider is None else self._decider.blocked_by

    @property
    def all_greeted(self) -> bool:
        """On process 0, whether all processes have come."""
        return self._decider is None or self._decider.all_greeted

    @property
    def seen_by_all(self) -> int:
        """On process 0, the decisions that all others have read."""
        return 0 if self._decider is None else self._decider.seen_by_all

    def waited_s(self, now: float) -> float:
        """Return for how long the consumer has been waiting for a decision; 0 if it is not."""
        if self._waiting_since is None or not self._starves():
            return 0.0
        return max(now - self._waiting_since, 1e-3)

    @property
    def has_room(self) -> bool:
        """Whether the source should be asked for another batch."""
        return self._held - self.placed < self.look_ahead

    @property
    def runs_low(self) -> bool:
        """Whether so little is held that a source that rests should be asked again."""
        return self._held - self.placed <= self.look_ahead // 2

    @property
    def own_batches(self) -> int:
        """Batches of this process's own rows; those beyond are padding. Final once it ended."""
        return self._held + (self._terms.ends != "drop" and self._tail > 0)

    def padding_schema(self, position: int) -> str:
        """Return the schema of a batch of padding at `position`."""
        known = [*self._schemas, *self._told]
        return max((change for change in known if change[0] <= position), key=lambda c: c[0])[1]

    def _note_batch(self, schema: str, checksum: str | None) -> None:
        if not self._schemas or self._schemas[-1][1] != schema:
            self._schemas = [(self._held, schema)]
            self._new_schemas.append((self._held, schema))
        if checksum is not None:
            self._new_sums.append((self._held, checksum))

    def _apply(self, decision: Decision, now: float) -> None:
        if decision.slow:
            self._logs.append(Log(logging.WARNING, decision.slow))
        if decision.go is not None:
            self.started = True
            self.look_ahead = self._least_ahead = max(2, decision.go.look_ahead)
            self._patience_s = max(self._patience_s, decision.go.patience_s)
        self._told += decision.schemas
        if decision.upto > self._granted:
            starved = self.placed == self._granted
            if starved and (self._pads or not self.has_room):  # more ahead would have helped
                self.look_further()
            self._granted = decision.upto
            self._forget()
        if decision.final is not None:
            many_rows = self._terms.batch_size * self._processes
            self._logs += end_logs(
                decision.final, self._granted, process=self._process, many_rows=many_rows
            )
            self._logs += idle_failure_log(decision.final, self._granted, self._error)
            self._end(decision.final, now)

    def _end(self, final: Final, now: float) -> None:
        self._final = final
        self._aftermath = Aftermath(final, now, process=self._process, timing=self._timing)

    def _forget(self) -> None:
        """Drop what was said of batches that are placed."""
        while len(self._told) > 1 and self._told[1][0] <= self.placed:
            self._told.pop(0)

    def _standing(self) -> Standing:
        schemas: Changes = tuple(self._new_schemas)
        return Standing(
            self._held,
            self._ended,
            self._tail,
            self._error,
            self._left_early,
            self.taken,
            self._offered if self._pads else 0,
            schemas,
            tuple(self._new_sums),
        )

    def _report(self, now: float) -> Report:
        waited_s = self.waited_s(now)
        hello = None if self.started else self._hello
        full = self._pads or (self.started and not self.has_room)
        report = Report(self._standing(), hello, self._seen, waited_s, full)
        self._new_schemas.clear()
        self._new_sums.clear()
        return report

    def _send(self, now: float) -> Report:
        report = self._report(now)
        self._sent = report
        self._sent_at = now
        self._news_since = None
        return report

    @property
    def _has_news(self) -> bool:
        """Whether something that may wait has not been said."""
        if self._decider is not None:
            return self._decider.has_news or (
                self._held > self._granted and 0 in self._decider.blocked_by
            )
        return self._offered != self._said

    @property
    def _pads(self) -> bool:
        """Whether all further batches are padding."""
        return self._ended and self._terms.ends == "pad"

    @property
    def _offered(self) -> int:
        """Batches that may be decided, as far as it is up to this process."""
        if not self._pads:
            return self._held
        return max(self.own_batches, self.placed + self.look_ahead)

    @property
    def _said(self) -> int:
        """Of `_offered`, what it was in the last report."""
        if self._sent is None:
            return 0
        standing = self._sent.standing
        return max(standing.batches(self._terms.ends), standing.reach)

    def _hungry(self) -> bool:
        return self._granted - self.placed <= self.look_ahead // 2

    def _gets_hungry(self) -> bool:
        return self._granted - self.placed == self.look_ahead // 2

    @property
    def _many(self) -> int:
        """Batches that are worth a message even if it could wait."""
        return max(1, self.look_ahead // 2)

    @property
    def _hold_s(self) -> float:
        """How long fewer may wait for more."""
        return self._timing.soon_s if self.quick and self._hungry() else self._timing.lazy_s

    def _least(self, now: float) -> float:
        """Return how many batches are worth a message now."""
        if not self._hungry():
            return math.inf
        return 1 if self._is_urgent(now) else self._many

    def _is_urgent(self, now: float) -> bool:
        """Whether even one batch is worth a message to a consumer that will soon need it."""
        if not self.quick or not self.has_room:
            return True
        return self.waited_s(now) >= self._timing.soon_s

    def _starves(self) -> bool:
        return self._waiting_since is not None and self.taken >= self._granted

    def _wait_is_told(self) -> bool:
        if self._sent is None or self._waiting_since is None:
            return False
        return self._sent.waited_s > 0 and self._sent_at >= self._waiting_since

    def _wait_report_s(self) -> float:
        return min(1.0, self._timing.timeout_s / 8)

    def _unsaid(self) -> bool:
        """Whether the last report lacks something that must not wait."""
        if self._sent is None:
            return True
        said = self._sent.standing
        return (said.ended, said.left, said.error) != (self._ended, self._left_early, self._error)

    def _report_is_due(self, now: float) -> bool:
        if self._unsaid() or self._sent is None:
            return True
        if now - self._sent_at >= self._timing.beat_s:
            return True
        if self.waited_s(now) >= self._wait_report_s() and not self._wait_is_told():
            return True
        if not self._has_news:
            return False
        if self._news_since is None:
            self._news_since = now
        return now - self._news_since >= self._hold_s or self._news_is_wanted(now)

    def _news_is_wanted(self, now: float) -> bool:
        """Whether batches that process 0 has not heard of should be told now."""
        said = self._said
        answered = said <= self._granted
        if not answered:  # an earlier report is still on its way
            return self._hungry() and self._offered - said >= 2 * self._many
        return self._offered - said >= self._least(now)

    def _give_up_on_decider(self, now: float) -> None:
        """Stop alone if process 0 says nothing for longer than it would wait itself."""
        silent_since = self._heard_at
        if not (self._timing.abort_on_loss and self._seen):
            if not self._starves() or self._waiting_since is None:
                return
            silent_since = max(silent_since, self._waiting_since)
        if now - silent_since < self._patience_s + 2 * self._timing.beat_s + 1.0:
            return
        said = "shows no sign of life" if self._seen else "has not called iter() on this iterator"
        note = Note(
            "SyncTimeoutError",
            f"process 0: {said}. A consumer waits for at most sync_timeout_s={self._patience_s:g}.",
            0,
            self._granted,
        )
        self._error = self._error or note
        self._end(Final(error=note), now)
