"""The flight records of all ranks as one timeline: Chrome trace JSON, which Perfetto opens.

One track a rank. A `phase` event starts a slice that ends with the rank's next one; all other
events are instants; faults and failures are named as such. Open the file in Perfetto's viewer,
or in chrome://tracing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.outcome import Died, Hung, Outcome, Raised, Undecided, state_of
from harness.records import Event
from harness.verdict import verdict

_TRACK = 1
_LONGEST_TEXT = 500
# Names of colours that the format reserves.
_BAD = "terrible"


def trace(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Make a trace of one run, as the JSON object of the Chrome trace event format.

    Times are microseconds from the start of the run. For ranks on the parent's host they are exact;
    a rank on another host counts from when it began the run, so it may be off by as much as the
    call took to travel: `otherData.clocks` says which.

    Args:
        outcomes: what `Gang.run` returned.
    """
    hosts = sorted({outcome.host for outcome in outcomes})
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [event for outcome in outcomes for event in _events(outcome)],
        "otherData": {
            "verdict": verdict(outcomes).headline,
            "clocks": "one clock: all ranks are on one host"
            if len(hosts) < 2
            else f"{len(hosts)} hosts: ranks of different hosts are aligned by the start of the "
            "run on each, so they may be off by as much as the call took to travel",
            "host_of_rank": {str(o.rank): o.host for o in outcomes},
        },
    }


def save(outcomes: Sequence[Outcome], path: str | Path) -> None:
    """Write the trace of one run to a file.

    Raises:
        OSError: it cannot be written.
    """
    Path(path).write_text(json.dumps(trace(outcomes)))


def _events(outcome: Outcome) -> Iterator[dict[str, Any]]:
    rank = outcome.rank
    name = f"rank {rank}"
    yield _meta(rank, "process_name", {"name": name})
    yield _meta(rank, "process_sort_index", {"sort_index": rank})
    yield _meta(rank, "thread_name", {"name": "phases"})
    end_us = max([_us(outcome.elapsed_s), *(_at(outcome, event) for event in outcome.events)])
    if isinstance(outcome, Raised) and outcome.t_s is not None:
        end_us = _us(outcome.t_s - outcome.start_s)
    phases = [event for event in outcome.events if event.kind == "phase"]
    for event, following in zip(phases, [*phases[1:], None], strict=False):
        at_us = _at(outcome, event)
        until_us = end_us if following is None else _at(outcome, following)
        yield {
            "name": _phase_name(event),
            "cat": "phase",
            "ph": "X",
            "ts": at_us,
            "dur": max(0.0, round(until_us - at_us, 3)),
            "pid": rank,
            "tid": _TRACK,
            "args": _args(event),
        }
    for event in outcome.events:
        if event.kind != "phase":
            yield _instant(outcome.rank, _title(event), event.kind, _at(outcome, event), event)
    ending = state_of(outcome)
    mark = _instant(rank, ending, "end", end_us, None, bad=ending != "returned")
    yield {**mark, "args": _ending(outcome)}


def _ending(outcome: Outcome) -> dict[str, Any]:
    """What there is to read on the mark of an ending."""
    match outcome:
        case Raised():
            return {"message": _plain(outcome.message), "traceback": _plain(outcome.traceback)}
        case Died() | Hung() | Undecided():
            return {"description": _plain(outcome.describe())}
    return {}


def _meta(rank: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": rank, "tid": _TRACK, "args": args}


def _instant(
    rank: int, title: str, kind: str, at_us: float, event: Event | None, *, bad: bool = False
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": title,
        "cat": kind,
        "ph": "i",
        # A fault is of interest to all: its line goes through all tracks.
        "s": "g" if kind == "fault" else "t",
        "ts": at_us,
        "pid": rank,
        "tid": _TRACK,
        "args": {} if event is None else _args(event),
    }
    if bad or kind in ("fault", "error"):
        found["cname"] = _BAD
    return found


def _at(outcome: Outcome, event: Event) -> float:
    return _us(event.t_s - outcome.start_s)


def _us(seconds: float) -> float:
    return round(1e6 * max(0.0, seconds), 3)


def _phase_name(event: Event) -> str:
    name = event.phase or "phase"
    return name if event.batch is None else f"{name} {event.batch}"


def _title(event: Event) -> str:
    if event.kind == "fault":
        return f"fault: {event.fields.get('fault')}"
    if event.kind == "error":
        return f"error: {event.fields.get('type')}"
    return event.kind if event.batch is None else f"{event.kind} {event.batch}"


def _args(event: Event) -> dict[str, Any]:
    return {"seq": event.seq, **{name: _plain(value) for name, value in event.fields.items()}}


def _plain(value: object) -> object:
    """Make it JSON of a size that a viewer can show."""
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape}"
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict) and len(value) <= 100:
        return {str(name): _plain(each) for name, each in value.items()}
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."
