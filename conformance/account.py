"""The account of one case: what went in, what was due, what was seen, as JSON values. Pure.

A case that passes needs few words: its input and what was due, which is what was seen. One that
does not has all that helps to find out why: batches, endings, stacks, and the last events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from conformance.inputs import in_words
from conformance.judge import expectations
from conformance.model import ID, Case, Topology, X
from conformance.observations import Seen, SeenBatch, SeenEpoch, read
from conformance.oracle import Expectation, Part
from harness import Hung, Outcome, Raised, Undecided

#: Enough to see where a process stood; a report holds many.
STACKS_BYTES = 6000
EVENTS = 80

Account = dict[str, Any]


def account(case: Case, topology: Topology, outcomes: Sequence[Outcome], *, whole: bool) -> Account:
    """What there is to say of one run of a case; what was seen only if ``whole``."""
    told: Account = {
        "input": _input(case),
        "input_words": in_words(case),
        "expected": [_due(n, e) for n, e in expectations(case, topology).items()],
    }
    if whole:
        start_s = min((o.events[0].t_s for o in outcomes if o.events), default=0.0)
        told["observed"] = [_seen(s, start_s) for s in read(outcomes)]
    return told


def _input(case: Case) -> dict[str, Any]:
    """What a case is made of, without what is as in every case."""
    plain: dict[str, Any] = _plain(case)
    for name in ("name", "clauses", "kinds", "options", "own_options"):
        plain.pop(name, None)
    per_process = range(max(len(case.shards), 1))
    options = [_json(case.options_of(p)) for p in per_process]
    same = all(o == options[0] for o in options)
    columns = {" ".join(map(str, (c.name, c.dtype, *c.trailing))) for c in (ID, X)}
    plain_columns = any(s.columns == (ID, X) for s in case.shards) or case.split is not None
    told = {"columns": sorted(columns)} if plain_columns else {}
    return {"options": options[0] if same else options, **told, **plain}


def _plain(value: object) -> Any:
    """A dataclass as its fields that are not as by default; other values as JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: _plain(v) for f, v in pairs if not _is_default(f, v)}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return _json(value)


def _is_default(field: Field[Any], value: object) -> bool:
    if field.default is not MISSING:
        return bool(field.default == value)
    return field.default_factory is not MISSING and bool(field.default_factory() == value)


def _json(value: object) -> Any:
    """A value that JSON can hold: whatever it has no word for is said as Python says it."""
    if isinstance(value, Mapping):
        return {str(k): _json(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_json(v) for v in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return repr(value)


def _due(number: int, expectation: Expectation) -> dict[str, Any]:
    exact = "exactly" if expectation.exact else "at most"
    return {
        "epoch": number,
        "counts": f"{exact} these, {'equal' if expectation.together else 'alone'}",
        "processes": [
            {"batches": [_part(p) for p in parts], "ending": _ending(ending, expectation)}
            for parts, ending in zip(expectation.parts, expectation.endings, strict=True)
        ],
    }


def _ending(ending: str, expectation: Expectation) -> str:
    return "ValueError" if ending == "error" and expectation.value_error else ending


def _part(part: Part) -> str:
    return f"{len(part.rows)}+{part.padding} padding" if part.padding else str(len(part.rows))


def _seen(seen: Seen, start_s: float) -> dict[str, Any]:
    outcome = seen.outcome
    told: dict[str, Any] = {
        "outcome": type(outcome).__name__.lower(),
        "elapsed_s": round(outcome.elapsed_s, 2),
        "epochs": [_epoch(n, e) for n, e in sorted(seen.epochs.items())],
        "events": [
            [round(e.t_s - start_s, 3), e.kind, e.fields.get("k")] for e in outcome.events[-EVENTS:]
        ],
    }
    if isinstance(outcome, Hung | Undecided):
        told["why"] = outcome.why
        told["stacks"] = outcome.stacks[-STACKS_BYTES:]
    elif isinstance(outcome, Raised):
        told["stacks"] = outcome.traceback[-STACKS_BYTES:]
    elif told["outcome"] == "died":
        told["why"] = outcome.describe()
        told["output"] = outcome.output[-STACKS_BYTES:]
    return told


def _epoch(number: int, epoch: SeenEpoch) -> dict[str, Any]:
    return {
        "epoch": number,
        "batches": [_batch(b) for b in epoch.batches],
        "ending": epoch.ending(),
        **({"traceback": epoch.error["traceback"]} if "traceback" in epoch.error else {}),
    }


def _batch(batch: SeenBatch) -> str:
    """The rows that this process holds of each column, shortened when all have the same."""
    rows = {name: len(leaf.rows) for name, leaf in batch.leaves.items()}
    sizes = set(rows.values())
    return str(sizes.pop()) if len(sizes) == 1 else str(rows)
