"""Follows one run from its start to one outcome a rank, for any backend."""

from __future__ import annotations

import pickle
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.backends import Ended, Gone, Session
from harness.diagnosis import View, place_of, who_waits_for_whom
from harness.outcome import Died, Hung, Outcome, Raised, Returned, Undecided, state_of
from harness.records import Clock, parse, parse_clock
from harness.watchdog import Sample, Watchdog

LONGEST_INTERVAL_S = 0.25
# JAX ends a process that has lost process 0, by SIGABRT or with status 1; the parent may see both
# deaths at once.
SAME_MOMENT_S = 1.0


@dataclass(frozen=True)
class _Told:
    what: Ended | Gone
    elapsed_s: float


class Run:
    """One run of one call on all ranks of a session.

    Args:
        session: the processes; none of them runs anything.
        calls: what `session.encode` gave, one item a rank.
        deadline_s: seconds from the start when ranks that have not ended are undecided.
        stall_s: seconds without any progress after which ranks that have not ended are hung.
        stops: ranks that are hung at once when they are stopped by a signal and all others ended.
    """

    def __init__(
        self,
        session: Session,
        calls: Sequence[Any],
        deadline_s: float,
        stall_s: float,
        stops: Collection[int] = (),
    ) -> None:
        self._session = session
        self._calls = calls
        self._deadline_s = deadline_s
        self._interval_s = min(LONGEST_INTERVAL_S, stall_s / 20)
        self._watchdog = Watchdog(stall_s)
        self._stops = frozenset(stops)
        self._clock = Clock.now()
        self._start_s = 0.0
        self._told: dict[int, _Told] = {}
        self._stopped_at_s: dict[int, float] = {}

    def outcomes(self) -> list[Outcome]:
        """Begin the run and wait until every rank has an outcome; index = rank."""
        self._clock = Clock.now()
        self._start_s = self._clock.t_s
        self._session.send(self._calls)
        next_sample_s = self._interval_s
        while True:
            self._listen(min(next_sample_s, self._deadline_s) - self._elapsed_s())
            unfinished = [rank for rank in range(len(self._calls)) if rank not in self._told]
            now_s = self._elapsed_s()
            late = now_s >= self._deadline_s
            if not unfinished:
                return self._finish({})
            if now_s < next_sample_s and not late:
                continue
            next_sample_s = now_s + self._interval_s
            samples = self._session.sample(unfinished)
            self._note_stops(samples, now_s)
            hung = self._watchdog.observe(now_s, samples) or all(
                rank in self._stops and sample.stopped for rank, sample in samples.items()
            )
            # An end that came while the samples were taken wins over a verdict.
            if (hung or late) and not self._listen(0):
                late_words = (
                    f"the deadline of {self._deadline_s:g} s passed before the gang had stood "
                    "still for stall_s: "
                )
                return self._finish(self._judge(samples, hung, "" if hung else late_words))

    def interrupted(self) -> list[Outcome]:
        """Give an outcome of every rank as it stands now; for who no longer waits for the end.

        Where no rank makes progress, those that have not ended are hung, though for less than
        `stall_s`.
        """
        self._listen(0)
        unfinished = [rank for rank in range(len(self._calls)) if rank not in self._told]
        samples = self._session.sample(unfinished)
        hung = not any(map(self._watchdog.is_busy, unfinished))
        words = f"interrupted after {self._elapsed_s():.1f} s: "
        return self._finish(self._judge(samples, hung, words))

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._start_s

    def _listen(self, limit_s: float) -> bool:
        ends = self._session.poll(max(0.0, limit_s))
        for what in ends:
            self._told.setdefault(what.rank, _Told(what, self._elapsed_s()))
        return bool(ends)

    def _note_stops(self, samples: Mapping[int, Sample], now_s: float) -> None:
        for rank, sample in samples.items():
            if sample.stopped:
                self._stopped_at_s.setdefault(rank, now_s)
            else:
                self._stopped_at_s.pop(rank, None)

    def _finish(self, unfinished: dict[int, Outcome]) -> list[Outcome]:
        ended = {rank: self._outcome_of_end(told) for rank, told in self._told.items()}
        outcomes = {**unfinished, **ended}
        return with_followers([outcomes[rank] for rank in sorted(outcomes)], self._stopped_at_s)

    def _judge(self, samples: Mapping[int, Sample], hung: bool, words: str) -> dict[int, Outcome]:
        elapsed_s = self._elapsed_s()
        # Records first: a stopped rank is continued for its stacks, and could add to them.
        seen = {rank: self._seen(rank, elapsed_s) for rank in samples}
        stacks = self._session.stacks(list(samples))
        ended = [self._outcome_of_end(told) for told in self._told.values()]
        views = [View(each.rank, state_of(each), each.last_event) for each in ended]
        for rank, sample in samples.items():
            state = "waits"
            if sample.stopped:
                state = "stopped"
            elif not hung and self._watchdog.is_busy(rank):
                state = "is busy"
            events = seen[rank]["events"]
            last_event = events[-1] if events else None
            views.append(View(rank, state, last_event, place_of(stacks[rank])))
        why = words + who_waits_for_whom(views)
        outcomes: dict[int, Outcome] = {}
        for rank, sample in samples.items():
            common: dict[str, Any] = {
                **seen[rank],
                "stacks": stacks[rank],
                "why": why,
                "stopped": sample.stopped,
                "stopped_s": self._stopped_at_s.get(rank),
            }
            outcomes[rank] = (
                Hung(**common) if hung else Undecided(**common, busy=self._watchdog.is_busy(rank))
            )
        return outcomes

    def _outcome_of_end(self, told: _Told) -> Outcome:
        common = self._seen(told.what.rank, told.elapsed_s)
        if isinstance(told.what, Gone):
            gone = told.what
            return Died(
                **common, exit_status=gone.exit_status, signal=gone.signal, detail=gone.detail
            )
        return _outcome_of_report(told.what, common)

    def _seen(self, rank: int, elapsed_s: float) -> dict[str, Any]:
        """Give what every outcome has, from the record and output of a rank."""
        data = self._session.record(rank)
        clock = parse_clock(data)
        same = clock is None or clock.host == self._clock.host
        return {
            "rank": rank,
            "events": parse(data),
            "elapsed_s": elapsed_s,
            "output": self._session.output(rank),
            "host": "" if clock is None else clock.host,
            "start_s": self._start_s if same or clock is None else clock.t_s,
        }


def _outcome_of_report(ended: Ended, common: dict[str, Any]) -> Outcome:
    report = pickle.loads(ended.report)
    if "type" in report:
        return Raised(**common, **report)
    try:
        value = pickle.loads(report["value"])
    except (Exception, SystemExit) as error:  # noqa: BLE001 - unpickling runs code of any class
        kind = type(error).__qualname__
        return Raised(
            **common,
            type=kind,
            mro=(kind,),
            message=f"the return value cannot be unpickled in the parent: {kind}: {error}",
            left_threads=report["left_threads"],
        )
    return Returned(**common, value=value, left_threads=report["left_threads"])


def with_followers(outcomes: list[Outcome], stopped_at_s: Mapping[int, float]) -> list[Outcome]:
    """Say of each death which rank's death or stop came before it.

    Args:
        outcomes: one a rank.
        stopped_at_s: for ranks that are stopped, seconds from the start when first seen so.
    """
    faults = [(at_s, rank, False) for rank, at_s in stopped_at_s.items()] + [
        (o.elapsed_s, o.rank, o.signal == "SIGABRT" or o.exit_status == 1)
        for o in outcomes
        if isinstance(o, Died)
    ]
    if not faults:
        return outcomes
    first_s = min(at_s for at_s, _, _ in faults)
    _, _, cause = min(
        (aborted, at_s, rank) for at_s, rank, aborted in faults if at_s - first_s <= SAME_MOMENT_S
    )
    return [
        replace(o, after=cause) if isinstance(o, Died) and o.rank != cause else o for o in outcomes
    ]
