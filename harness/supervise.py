"""Follows one run from its start to one outcome a rank, for any backend."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.backends import Ended, Gone, Session
from harness.diagnosis import View, place_of, who_waits_for_whom
from harness.outcome import Died, Hung, Outcome, Raised, Returned, Undecided
from harness.records import Event, parse
from harness.watchdog import Sample, Watchdog

LONGEST_INTERVAL_S = 0.25


@dataclass(frozen=True)
class _Told:
    what: Ended | Gone
    elapsed_s: float


def supervise(session: Session, processes: int, deadline_s: float, stall_s: float) -> list[Outcome]:
    """Wait until every rank has ended, is gone, hangs, or the deadline passes.

    Args:
        session: the processes, which have just been sent their call.
        processes: number of ranks.
        deadline_s: seconds from now when those that have not ended are undecided.
        stall_s: seconds without any progress after which those that have not ended are hung.
    """
    start_s = time.monotonic()
    interval_s = min(LONGEST_INTERVAL_S, stall_s / 20)
    watchdog = Watchdog(stall_s)
    told: dict[int, _Told] = {}
    stopped: dict[int, float] = {}
    next_sample_s = start_s + interval_s
    while len(told) < processes:
        wait_s = min(next_sample_s, start_s + deadline_s) - time.monotonic()
        for what in session.poll(max(0.0, wait_s)):
            told.setdefault(what.rank, _Told(what, time.monotonic() - start_s))
        now_s = time.monotonic()
        unfinished = [rank for rank in range(processes) if rank not in told]
        late = now_s - start_s >= deadline_s
        if not unfinished or (now_s < next_sample_s and not late):
            continue
        next_sample_s = now_s + interval_s
        samples = session.sample(unfinished)
        for rank, sample in samples.items():
            if sample.stopped:
                stopped.setdefault(rank, now_s - start_s)
            else:
                stopped.pop(rank, None)
        hung = watchdog.observe(now_s, samples)
        # An end that came while the samples were taken wins over a verdict.
        if (hung or late) and not (ends := session.poll(0)):
            return _judge(session, processes, told, samples, hung, watchdog, now_s - start_s)
        elif hung or late:
            for what in ends:
                told.setdefault(what.rank, _Told(what, time.monotonic() - start_s))
    outcomes = {rank: _outcome(session, each) for rank, each in told.items()}
    return with_followers([outcomes[rank] for rank in range(processes)], stopped)


def _judge(
    session: Session,
    processes: int,
    told: Mapping[int, _Told],
    samples: Mapping[int, Sample],
    hung: bool,
    watchdog: Watchdog,
    elapsed_s: float,
) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {rank: _outcome(session, each) for rank, each in told.items()}
    # Records first: continuing a stopped rank for its stacks could add to them.
    events = {rank: parse(session.record(rank)) for rank in samples}
    stacks = session.stacks(list(samples))
    views = [_view_of_end(outcome) for outcome in outcomes.values()] + [
        View(
            rank,
            "stopped" if sample.stopped else "waits",
            events[rank][-1] if events[rank] else None,
            place_of(stacks[rank]),
        )
        for rank, sample in samples.items()
    ]
    why = who_waits_for_whom(views)
    if not hung:
        why = (
            f"the deadline passed at {elapsed_s:.1f} s and the gang had not stood still for long "
            f"enough to be hung ({watchdog.still_s:.1f} s without an event): {why}"
        )
    for rank, sample in samples.items():
        common: dict[str, Any] = {
            "rank": rank,
            "events": events[rank],
            "elapsed_s": elapsed_s,
            "output": session.output(rank),
            "stacks": stacks[rank],
            "why": why,
        }
        outcomes[rank] = Hung(**common, stopped=sample.stopped) if hung else Undecided(**common)
    stopped = {rank: 0.0 for rank, sample in samples.items() if sample.stopped}
    return with_followers([outcomes[rank] for rank in range(processes)], stopped)


def _view_of_end(outcome: Outcome) -> View:
    match outcome:
        case Raised():
            state = f"raised {outcome.type}"
        case Died():
            state = (
                f"died by {outcome.signal}"
                if outcome.signal
                else (f"died with exit status {outcome.exit_status}")
            )
        case _:
            state = "returned"
    return View(outcome.rank, state, outcome.last_event)


def _outcome(session: Session, told: _Told) -> Outcome:
    rank = told.what.rank
    events: tuple[Event, ...] = parse(session.record(rank))
    common: dict[str, Any] = {
        "rank": rank,
        "events": events,
        "elapsed_s": told.elapsed_s,
        "output": session.output(rank),
    }
    if isinstance(told.what, Gone):
        return Died(**common, exit_status=told.what.exit_status, signal=told.what.signal)
    report = pickle.loads(told.what.report)
    if "type" in report:
        return Raised(**common, **report)
    try:
        value = pickle.loads(report["value"])
    except Exception as error:  # noqa: BLE001 - unpickling runs code of any class
        kind = type(error).__qualname__
        return Raised(
            **common,
            type=kind,
            mro=(kind,),
            message=f"the return value cannot be unpickled in the parent: {kind}: {error}",
            left_threads=report["left_threads"],
        )
    return Returned(**common, value=value, left_threads=report["left_threads"])


# The runtime ends a process by SIGABRT when it has lost another; the parent may see both at once.
_SAME_MOMENT_S = 1.0


def with_followers(outcomes: list[Outcome], stopped: Mapping[int, float]) -> list[Outcome]:
    """Say of each death which rank's death or stop came before it.

    Args:
        outcomes: one a rank.
        stopped: seconds from the start of the run when each stopped rank was first seen so.
    """
    faults = [(at_s, rank, False) for rank, at_s in stopped.items()] + [
        (o.elapsed_s, o.rank, o.signal == "SIGABRT") for o in outcomes if isinstance(o, Died)
    ]
    if not faults:
        return outcomes
    first_s = min(at_s for at_s, _, _ in faults)
    _, _, cause = min(
        (aborted, at_s, rank) for at_s, rank, aborted in faults if at_s - first_s <= _SAME_MOMENT_S
    )
    return [
        replace(o, after=cause) if isinstance(o, Died) and o.rank != cause else o for o in outcomes
    ]
