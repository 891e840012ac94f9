"""The faults that were injected into a run, as its records tell of them."""

from __future__ import annotations

from collections.abc import Iterable

from harness.outcome import Outcome
from harness.records import Event


def injected(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Return each fault in a few words, by time: `stop of rank 1 at batch 2 for 0.5 s`."""
    found = [
        (event.t_s - outcome.start_s, outcome.rank, event)
        for outcome in outcomes
        for event in outcome.events
        if event.kind == "fault"
    ]
    found.sort(key=lambda fault: fault[:2])
    return tuple(_words(rank, event) for _, rank, event in found)


def missed(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Return each fault that a rank returned without having come to, and how far it came.

    `rank 1 at batch 9: kill (the last that it came to was batch 2)`.
    """
    return tuple(
        str(event.fields.get("fault"))
        for outcome in outcomes
        for event in outcome.events
        if event.kind == "missed"
    )


def _words(rank: int, event: Event) -> str:
    at = "" if event.batch is None else f" at batch {event.batch}"
    for_s = event.fields.get("for_s")
    length = f" for {for_s:g} s" if isinstance(for_s, int | float) else ""
    return f"{event.fields.get('fault')} of rank {rank}{at}{length}"
