"""What the records of ranks say of their batches, and where they do not agree. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.outcome import Outcome, Returned
from harness.records import Event
from harness.stacks import ranks_text


def batches_of(outcome: Outcome) -> dict[int, dict[int, Event]]:
    """Give the `batch` events of a rank's record: by epoch, then by number."""
    found: dict[int, dict[int, Event]] = {}
    for event in outcome.events:
        if event.kind == "batch" and event.batch is not None:
            found.setdefault(event.epoch, {})[event.batch] = event
    return found


def counts_of(outcomes: Sequence[Outcome]) -> list[dict[int, int]]:
    """Give the number of batches of each rank: by epoch, index = rank."""
    return [{epoch: len(b) for epoch, b in batches_of(o).items()} for o in outcomes]


def uneven(outcomes: Sequence[Outcome]) -> dict[str, Any] | None:
    """Find the first epoch in which a rank is through with fewer batches than another has."""
    counts = counts_of(outcomes)
    for epoch in sorted({epoch for each in counts for epoch in each}):
        most = max(each.get(epoch, 0) for each in counts)
        short = {
            o.rank: own.get(epoch, 0)
            for o, own in zip(outcomes, counts, strict=True)
            if own.get(epoch, 0) < most and _is_through(o, epoch)
        }
        if short:
            least = min(short.values())
            name = f"epoch {epoch}: " if len({e for each in counts for e in each}) > 1 else ""
            each = "; ".join(
                f"{ranks_text(ranks)} {count}"
                for count, ranks in _by_value({r: c.get(epoch, 0) for r, c in enumerate(counts)})
            )
            return {
                "word": "count mismatch",
                "ranks": tuple(sorted(short)),
                "batch": least,
                "because": f"{name}batches of each: {each}",
            }
    return None


def _by_value(values: Mapping[int, Any]) -> list[tuple[Any, list[int]]]:
    groups: dict[str, tuple[Any, list[int]]] = {}
    for rank, value in sorted(values.items()):
        groups.setdefault(repr(value), (value, []))[1].append(rank)
    return list(groups.values())


def _is_through(outcome: Outcome, epoch: int) -> bool:
    return isinstance(outcome, Returned) or any(
        event.kind == "end" and "type" not in event.fields and event.epoch == epoch
        for event in outcome.events
    )


def unlike(outcomes: Sequence[Outcome]) -> tuple[float, dict[str, Any]] | None:
    """Find the first batch whose global shapes or dtypes differ, and when it was complete."""
    seen: dict[tuple[int, int], dict[int, Event]] = {}
    for outcome in outcomes:
        for epoch, batches in batches_of(outcome).items():
            for number, event in batches.items():
                seen.setdefault((epoch, number), {})[outcome.rank] = event
    for (_, number), events in sorted(seen.items()):
        for field, word in (("shapes", "shape mismatch"), ("dtypes", "dtype mismatch")):
            told = {r: e.fields[field] for r, e in events.items() if field in e.fields}
            groups = _by_value(told)
            if len(groups) > 1:
                odd = min(groups, key=lambda group: (len(group[1]), -group[1][0]))[1]
                at_s = max(events[r].t_s - outcomes[r].start_s for r in told)
                return at_s, {
                    "word": word,
                    "ranks": tuple(odd),
                    "batch": number,
                    "because": _differ(groups),
                }
    return None


def _differ(groups: Sequence[tuple[Any, list[int]]]) -> str:
    """Say what differs, by column where the values are mappings."""
    if not all(isinstance(value, dict) for value, _ in groups):
        return "; ".join(f"{ranks_text(ranks)} {value}" for value, ranks in groups)
    columns = {column for value, _ in groups for column in value}
    lines = []
    for column in sorted(columns):
        own = {
            rank: value.get(column, "no such column") for value, ranks in groups for rank in ranks
        }
        parts = _by_value(own)
        if len(parts) > 1:
            each = "; ".join(f"{ranks_text(ranks)} {value}" for value, ranks in parts)
            lines.append(f"column {column!r}: {each}")
    return ". ".join(lines)
