"""Process 0's side of the agreement: reports in, decisions out. No I/O, and no clock of its own.

Only process 0 decides, time-outs included, so that no two processes can decide differently. A
process that fails or leaves is answered at once; otherwise a decision waits for whom it needs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxiter import notes
from jaxiter.agreement import (
    Changes,
    Final,
    SchemaWords,
    Standing,
    Terms,
    Verdict,
    decide,
    schemas_for_padding,
)
from jaxiter.errors import Note
from jaxiter.messages import Decision, Go, Hello, Report


@dataclass(frozen=True)
class Timing:
    """Seconds, all of them.

    Attributes:
        timeout_s: How long a consumer waits before that is an error.
        beat_s: How often each process gives a sign of life.
        lazy_s: How long news may wait for more news while no consumer is about to need it.
        soon_s: The same where the consumer is back at once, and will soon need it.
        warn_s: How often the log names who is waited for.
        abort_on_loss: End this process if a peer is lost while it is stuck in its own step.
        abort_grace_s: How long a step may still take after the loss.
    """

    timeout_s: float = 600.0
    beat_s: float = 5.0
    lazy_s: float = 0.1
    soon_s: float = 2**-7
    warn_s: float = 30.0
    abort_on_loss: bool = False
    abort_grace_s: float = 30.0

    @staticmethod
    def of(timeout_s: float, abort_on_loss: bool) -> "Timing":
        """Return the timing that suits a time-out."""
        return Timing(
            timeout_s,
            beat_s=min(5.0, max(0.05, timeout_s / 10)),
            abort_on_loss=abort_on_loss,
            abort_grace_s=min(30.0, timeout_s),
        )

    @staticmethod
    def alone() -> "Timing":
        """Return the timing of a process that waits for no other."""
        return Timing(math.inf, warn_s=math.inf)

    @property
    def silence_s(self) -> float:
        """How long a process may say nothing before it counts as silent."""
        return 3 * self.beat_s + 1.0


class Decider:
    """What process 0 knows of all processes, its own included."""

    def __init__(
        self,
        terms: Terms,
        timing: Timing,
        now: float,
        *,
        processes: int,
        schema_words: SchemaWords | None = None,
    ) -> None:
        self.decided = 0
        self._terms = terms
        self._timing = timing
        self._options = {} if schema_words is None else {"schema_words": schema_words}
        self._reports: list[Report | None] = [None] * processes
        self._standings: list[Standing | None] = [None] * processes  # with all that still counts
        self._hellos: list[Hello | None] = [None] * processes
        self._heard_at = [now] * processes
        self._waiting_since: list[float | None] = [None] * processes
        self._go = False
        self._verdict = Verdict(0, None, tuple(range(processes)))
        self._fresh = False  # reports came in since the verdict
        self._news_since: float | None = None
        self._advanced_at = now
        self._spoke_at = now
        self._warned = 0
        self._told_schema: str | None = None

    def heard(self, process: int, report: Report, now: float) -> None:
        """Take in the next report of a process."""
        self._heard_at[process] = now
        self._waiting_since[process] = now - report.waited_s if report.waited_s else None
        if report.hello is not None:
            self._hellos[process] = report.hello
        before, standing = self._standings[process], report.standing
        if before is not None:
            schemas = _since(self.decided, before.schemas + standing.schemas)
            sums = _since(self.decided, before.sums + standing.sums)
            if schemas != standing.schemas or sums != standing.sums:
                standing = replace(standing, schemas=schemas, sums=sums)
        self._reports[process] = report
        self._standings[process] = standing
        if before != standing:
            self._fresh = True

    @property
    def blocked_by(self) -> tuple[int, ...]:
        """Processes whose next report is needed before more can be decided."""
        return self._verdict.blocked_by

    @property
    def has_news(self) -> bool:
        """Whether more could be decided than has been."""
        return self._verdict.upto > self.decided

    @property
    def is_waited_for(self) -> bool:
        """Whether the consumer of another process has said that it waits."""
        return any(since is not None for since in self._waiting_since[1:])

    @property
    def all_greeted(self) -> bool:
        """Whether all processes have come to this place."""
        return all(report is not None for report in self._reports)

    @property
    def seen_by_all(self) -> int:
        """Decisions that every other process has read."""
        return min((0 if r is None else r.seen for r in self._reports[1:]), default=0)

    def poll(self, least: float, hold_s: float, now: float) -> Decision | None:
        """Return the decision that is due, if any.

        Args:
            least: How many batches are worth a decision here.
            hold_s: How long fewer may wait for more.
            now: Seconds.
        """
        if self._fresh:
            self._fresh = False
            self._verdict = self._judge()
        verdict = self._verdict
        lateness = self._lateness(now)
        if verdict.final is None:
            late = self._too_late(lateness, now)
            if late is not None:
                verdict = Verdict(verdict.upto, Final(error=late))
        if verdict.upto == self.decided:
            self._news_since = None
        elif self._news_since is None:
            self._news_since = now
        go = None
        if not self._go and verdict.final is None and self.all_greeted:
            go = Go(max(h.look_ahead for h in self._hellos if h), self._timing.timeout_s)
            self._go = True
        due = (
            go is not None
            or verdict.final is not None
            or verdict.upto - self.decided >= least
            or (verdict.upto > self.decided and self.is_waited_for)
            or (self._news_since is not None and now - self._news_since >= hold_s)
        )
        slow = self._warning(lateness, now) if verdict.final is None else ""
        if due:
            return self._speak(verdict, go, slow, now)
        if slow or now - self._spoke_at >= self._timing.beat_s:
            self._spoke_at = now
            return Decision(self.decided, slow=slow)
        return None

    def wake_at(self, hold_s: float) -> float:
        """Return when `poll` may have something to say without further news, in seconds."""
        times = [self._spoke_at + self._timing.beat_s]
        if self._news_since is not None:
            times.append(self._news_since + hold_s)
        since = min((s for s in self._waiting_since if s is not None), default=None)
        if since is not None:
            since = max(since, self._advanced_at)
            times.append(since + self._timing.warn_s * (self._warned + 1))
            times.append(since + self._timing.timeout_s)
        return min(times)

    @property
    def _known(self) -> list[Standing]:
        """Where the processes stand that have reported: once it goes, all of them."""
        return [standing for standing in self._standings if standing is not None]

    def _judge(self) -> Verdict:
        if self._go:
            return decide(self._terms, self._known, self.decided, **self._options)
        stops = [
            Final(error=standing.error)
            if standing.error is not None
            else Final(error=notes.left(process, 0), left=(process, 0))
            for process, standing in enumerate(self._standings)
            if standing is not None and (standing.error is not None or standing.left)
        ]
        if stops:
            return Verdict(0, stops[0])
        missing = tuple(p for p, report in enumerate(self._reports) if report is None)
        if missing:
            return Verdict(0, None, missing)
        hellos = [hello for hello in self._hellos if hello is not None]
        note = notes.disagreement([hello.agreed for hello in hellos])
        if note is not None:
            return Verdict(0, Final(error=note))
        self._terms = replace(self._terms, row_sets=tuple(hello.row_set for hello in hellos))
        return Verdict(0, None, tuple(range(len(hellos))))

    def _speak(self, verdict: Verdict, go: Go | None, slow: str, now: float) -> Decision:
        schemas: Changes = ()
        if self._go and verdict.upto > self.decided:
            schemas = schemas_for_padding(
                self._terms, self._known, self.decided, verdict.upto, self._told_schema
            )
        if schemas:
            self._told_schema = schemas[-1][1]
        if verdict.upto > self.decided:
            self.decided = verdict.upto
            self._advanced_at = now
            self._warned = 0
            self._waiting_since = [None] * len(self._waiting_since)
        self._news_since = None
        self._spoke_at = now
        return Decision(verdict.upto, go, verdict.final, schemas, slow)

    def _lateness(self, now: float) -> float | None:
        """Return the seconds that some consumer has waited for a decision; None if none does."""
        since = min((s for s in self._waiting_since if s is not None), default=None)
        return None if since is None else max(0.0, now - max(since, self._advanced_at))

    def _too_late(self, lateness: float | None, now: float) -> Note | None:
        timeout_s = self._timing.timeout_s
        late = self.blocked_by if lateness is not None and lateness >= timeout_s else ()
        if not late and self._timing.abort_on_loss:
            late = tuple(
                process
                for process, heard_at in enumerate(self._heard_at)
                if process and self._reports[process] is not None and now - heard_at >= timeout_s
            )
        if not late:
            return None
        return Note(
            "SyncTimeoutError",
            f"{self._words(late, now)}. A consumer waits for at most sync_timeout_s={timeout_s:g}.",
            late[0],
            self.decided,
        )

    def _warning(self, lateness: float | None, now: float) -> str:
        if lateness is None or lateness < self._timing.warn_s * (self._warned + 1):
            return ""
        self._warned = int(lateness // self._timing.warn_s)
        return f"batch {self.decided} is {lateness:.0f} s late: {self._words(self.blocked_by, now)}"

    def _words(self, late: Sequence[int], now: float) -> str:
        groups: dict[str, list[int]] = {}
        for process in late:
            groups.setdefault(self._reason(process, now), []).append(process)
        return "; ".join(f"{notes.names(who)}: {words}" for words, who in groups.items())

    def _reason(self, process: int, now: float) -> str:
        report = self._reports[process]
        if report is None:
            return "has not called iter() on this iterator"
        silent_s = now - self._heard_at[process]
        if process and silent_s > self._timing.silence_s:
            return f"no sign of life for {silent_s:.0f} s"
        if report.full:
            return (
                f"its consumer took {report.standing.taken} batches and has not come back for "
                "more (busy compiling or saving?)"
            )
        return f"still reading batch {report.standing.held} from its source"


def _since(position: int, changes: Changes) -> Changes:
    """Return the value at `position` and what changes later."""
    first = 0
    while first + 1 < len(changes) and changes[first + 1][0] <= position:
        first += 1
    return changes[first:]
