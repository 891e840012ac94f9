"""What the records of a run say: each process's batches and endings, as values to compare."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.frames import died_at, raised_at, stands_at
from conformance.rows import Array
from harness import Died, Event, Hung, Outcome, Raised, Undecided
from harness.outcome import Finished

#: What a terminal takes for colours; Ray puts it into messages.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: Of a long message its start and its end are shown: Ray puts the first error last.
_HEAD, _TAIL = 300, 150


@dataclass(frozen=True)
class SeenLeaf:
    """One array of a batch as one process sees it.

    ``rows`` are its addressable shards put together in order of their index: shape
    ``(rows of this process, *trailing)``. ``devices`` are ``(device, first row, end row)`` of each.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    rows: Array
    devices: tuple[tuple[int, int, int], ...]
    sharding: dict[str, Any] | None
    kind: str = "jax.Array"


@dataclass
class SeenBatch:
    """One batch: its arrays by column name, and what a computation across processes gave."""

    leaves: dict[str, SeenLeaf]
    tree: str = ""
    sums: list[float] | None = None
    moved: list[Array] | None = None


@dataclass
class SeenEpoch:
    """One epoch of one process. ``how`` is empty while it has not ended.

    ``how`` is ``error in the step`` when what raised was not the iterator but the computation on a
    batch that it gave.
    """

    batches: list[SeenBatch] = field(default_factory=list)
    how: str = ""
    error: dict[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Batches that the process got."""
        return len(self.batches)

    def ending(self) -> str:
        """How the epoch ended, in words."""
        if not self.error:
            return self.how or "no end"
        text = f"{self.error['type']}: {_shortened(_COLOURS.sub('', self.error['message']))}"
        return text if self.how == "error" else f"{self.how}: {text}"


@dataclass(frozen=True)
class Seen:
    """All that one process recorded."""

    outcome: Outcome
    epochs: dict[int, SeenEpoch]
    left_threads: tuple[str, ...]
    logs: tuple[dict[str, Any], ...] = ()
    stats: tuple[dict[str, Any], ...] = ()

    @property
    def process(self) -> int:
        """The process's number."""
        return self.outcome.rank


def read(outcomes: Sequence[Outcome]) -> list[Seen]:
    """Turn the records of every process into observations."""
    return [
        Seen(
            o,
            _epochs(o.events),
            o.left_threads if isinstance(o, Finished) else (),
            tuple(e.fields for e in o.events if e.kind == "log"),
            tuple(e.fields for e in o.events if e.kind == "stats"),
        )
        for o in outcomes
    ]


def _shortened(message: str) -> str:
    left_out = len(message) - _HEAD - _TAIL
    if left_out <= 0:
        return message
    return f"{message[:_HEAD]} [... {left_out} characters left out ...] {message[-_TAIL:]}"


def _epochs(events: Sequence[Event]) -> dict[int, SeenEpoch]:
    epochs: dict[int, SeenEpoch] = {}
    stepping = False
    for event in events:
        fields = event.fields
        if event.kind not in ("next", "batch", "step", "stepped", "moved", "end"):
            continue
        epoch = epochs.setdefault(fields["epoch"], SeenEpoch())
        match event.kind:
            case "batch":
                leaves = [_leaf(leaf) for leaf in fields["leaves"]]
                columns = {_column(leaf.path): leaf for leaf in leaves}
                epoch.batches.append(SeenBatch(columns, fields.get("tree", "")))
            case "stepped":
                epoch.batches[fields["k"]].sums = fields["sums"]
            case "moved":
                epoch.batches[fields["k"]].moved = fields["leaves"]
            case "end":
                epoch.how = "error in the step" if stepping else fields["how"]
                epoch.error = {k: v for k, v in fields.items() if k not in ("epoch", "how")}
        stepping = event.kind == "step"
    return epochs


def _column(path: str) -> str:
    """``['x']`` is the column x; the path of a bare array is empty."""
    top = path.startswith("['") and path.endswith("']") and "[" not in path[1:]
    return path[2:-2] if top else path


def _leaf(fields: dict[str, Any]) -> SeenLeaf:
    if "shards" not in fields:
        none = np.empty((0,), np.float32)
        return SeenLeaf(fields["path"], (), "", none, (), None, fields["type"])
    shards = fields["shards"]
    # Copies of the same rows on several devices count once, and must be the same.
    spans = {_span(s): s["data"] for s in reversed(shards)}
    firsts = [(s["data"], spans[_span(s)]) for s in shards]
    same = all(data is first or np.array_equal(data, first) for data, first in firsts)
    kind = "jax.Array" if same else "jax.Array whose copies differ"
    data = [spans[span] for span in sorted(spans)]
    joined = data and data[0].ndim and len({d.shape[1:] for d in data}) == 1
    whole = np.concatenate(data) if joined else np.empty((0,), np.float32)
    devices = tuple((s["device"], *s["index"][0]) for s in shards if s["index"])
    return SeenLeaf(
        fields["path"],
        tuple(fields["shape"]),
        fields["dtype"],
        whole,
        devices,
        fields.get("sharding"),
        kind,
    )


def _span(shard: dict[str, Any]) -> tuple[int, ...]:
    """First and end row of a shard in the global array."""
    return tuple(shard["index"][0]) if shard["index"] else ()


def stuck(seen: Sequence[Seen]) -> str:
    """Where each process of a hang stood, in one line each; empty when all came back."""
    if all(isinstance(s.outcome, Finished) for s in seen):
        return ""
    lines = []
    for s in seen:
        done = "; ".join(_where(n, e) for n, e in sorted(s.epochs.items()))
        at = "" if isinstance(s.outcome, Finished) else f", {_standing(s.outcome.last_event)}"
        if isinstance(s.outcome, Hung | Undecided) and (place := stands_at(s.outcome.stacks)):
            at += f", at {place}"
        if isinstance(s.outcome, Died):
            at = f", {in_processes(s.outcome.describe())}"
        lines.append(f"process {s.process}: {done or 'no batch'}{at}")
        if isinstance(s.outcome, Died):
            lines += [f"  {words}" for words in died_at(s.outcome.output)]
    return "\n".join(lines)


def _standing(last: Event | None) -> str:
    """What a process that did not come back was doing, from its last record."""
    if last is None:
        return "stuck before its first next()"
    k = last.fields.get("k")
    match last.kind:
        case "next":
            return f"stuck in next() for batch {k}"
        case "step":
            return f"stuck in the computation after batch {k}"
        case _:
            return f"stuck after {last.kind!r}"


def _where(number: int, epoch: SeenEpoch) -> str:
    name = f"epoch {number}: " if number else ""
    return f"{name}{epoch.count} batches, {epoch.ending()}"


def in_processes(words: str) -> str:
    """Words of the harness, which speaks of ranks, in the suite's: it speaks of processes.

    Where a rank waits in the suite's own loop, the line of that loop says nothing to anybody.
    """
    words = re.sub(r" at observe\.py:\d+ in \w+(?: \(.*?\))?(?= after )", "", words)
    return re.sub(
        r"\b([Rr])ank(s?) (?=\d)",
        lambda m: f"{'P' if m[1] == 'R' else 'p'}rocess{'es' if m[2] else ''} ",
        words,
    )


def where_raised(seen: Sequence[Seen]) -> str:
    """Where the error that ended an epoch was raised, each place once; empty without errors."""
    places: dict[str, list[str]] = {}
    for s in seen:
        for number, epoch in sorted(s.epochs.items()):
            if place := raised_at(epoch.error.get("traceback", "")):
                in_epoch = f" in epoch {number}" if number else ""
                places.setdefault(place, []).append(f"{s.process}{in_epoch}")
    return "\n".join(
        f"process{'es' if len(who) > 1 else ''} {', '.join(who)} raised at {place}"
        for place, who in places.items()
    )


def broke(seen: Sequence[Seen]) -> str:
    """Errors outside the iterator on any rank: of the observer, or of what was yielded."""
    return "\n".join(
        f"process {s.process} raised outside the iterator: {s.outcome.type}: {s.outcome.message}"
        for s in seen
        if isinstance(s.outcome, Raised)
    )
