"""The right answer for any case: rows of each process, sizes of its pieces, and options, in numpy.

Nothing here is shared with an implementation. Where timing may decide (how many batches precede an
error), the answer is a relation: at most ``len(batches)``, and the same number on every process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from conformance.arrival import delivered_dtype, holds, padding_of, undeliverable
from conformance.model import Case

Ending = Literal["stop", "error", "left", "stop or error"]


@dataclass(frozen=True)
class Part:
    """One process's part of one batch: which rows of its shard, then how many rows of padding."""

    rows: tuple[int, ...]
    padding: int = 0

    @property
    def size(self) -> int:
        """Rows in this part."""
        return len(self.rows) + self.padding


@dataclass(frozen=True)
class Expectation:
    """What every process must observe in one epoch.

    ``parts[process][k]`` is that process's part of batch ``k``. A process that ends without an
    error gets exactly these batches; one that ends in an error too if ``exact``, otherwise at most
    these. Unless ``together`` is off, all get the same number and end alike.
    ``endings`` has one entry a process. ``ordered``: rows arrive in this order; otherwise each
    arrives once, in any. ``value_error``: the error must be a ValueError.
    """

    parts: tuple[tuple[Part, ...], ...]
    endings: tuple[Ending, ...]
    exact: bool = True
    together: bool = True
    ordered: bool = True
    value_error: bool = False


_STOP: Ending = "stop"
_ERROR: Ending = "error"


def expect(rows: list[int], options: Mapping[str, Any], devices: int) -> Expectation:
    """The answer for processes with ``rows`` rows each, the same options, and no fault.

    The sizes in which a source emits its rows do not appear: they must not matter (SIZE-1).
    """
    processes = len(rows)
    size = options.get("batch_size", 256)
    nothing: tuple[tuple[Part, ...], ...] = ((),) * processes
    if size <= 0 or size % devices:
        return Expectation(nothing, (_ERROR,) * processes, value_error=True)
    full = [r // size for r in rows]
    some = [math.ceil(r / size) for r in rows]
    if not options.get("synchronize_batches", True):
        return _each_alone(rows, options, devices)
    if options.get("drop_last"):
        parts = tuple(_parts(r, size, min(full), pad=False) for r in rows)
        return Expectation(parts, (_STOP,) * processes)
    if options.get("paddings") is not None:
        parts = tuple(_parts(r, size, max(some), pad=True) for r in rows)
        return Expectation(parts, (_STOP,) * processes)
    parts = tuple(_parts(r, size, n, pad=False) for r, n in zip(rows, some, strict=True))
    same = 0
    while all(len(p) > same for p in parts):
        sizes = {p[same].size for p in parts}
        if len(sizes) > 1 or sizes.pop() % devices:
            break
        same += 1
    whole = all(len(p) == same for p in parts)
    return Expectation(
        tuple(p[:same] for p in parts),
        (_STOP if whole else _ERROR,) * processes,
        exact=whole,
        value_error=not whole,
    )


def _parts(rows: int, size: int, count: int, *, pad: bool) -> tuple[Part, ...]:
    parts = []
    for k in range(count):
        real = tuple(range(min(k * size, rows), min((k + 1) * size, rows)))
        parts.append(Part(real, size - len(real) if pad else 0))
    return tuple(parts)


def _each_alone(rows: list[int], options: Mapping[str, Any], devices: int) -> Expectation:
    size = options.get("batch_size", 256)
    pad = options.get("paddings") is not None and not options.get("drop_last")
    parts: list[tuple[Part, ...]] = []
    endings: list[Ending] = []
    for r in rows:
        count = r // size if options.get("drop_last") else math.ceil(r / size)
        own = _parts(r, size, count, pad=pad)
        placed = all(part.size % devices == 0 for part in own)
        parts.append(own if placed else own[:-1])
        endings.append(_STOP if placed else _ERROR)
    whole = _ERROR not in endings
    return Expectation(
        tuple(parts), tuple(endings), exact=whole, together=False, value_error=not whole
    )


def expect_case(case: Case, devices: int) -> Expectation:
    """The answer for one epoch of a case whose shards are known row by row (no ``split``)."""
    processes = range(len(case.shards))
    common = case.options_of(0)
    size = common.get("batch_size", 256)
    base = expect([shard.rows for shard in case.shards], common, devices)
    if size <= 0 or size % devices:
        return base
    if common.get("local_shuffle_buffer_size"):
        base = replace(base, ordered=False)
    own = [_first(_limit(case, p), _unfit_padding(case, base, p)) for p in processes]
    if not base.together:
        return _cut_alone(base, own)
    if _options_differ(case):
        return _cut(base, 0, value_error=0 not in own)
    schema = _schemas_differ(case, base)
    troubled = _first(*own, schema)
    if troubled is None:
        return base
    if common.get("drop_last") and troubled >= _agreed_end(case, size):
        # Beyond the end: an iterator may notice it while it reads ahead, and need not.
        return _cut(base, troubled, ending="stop or error")
    return _cut(base, troubled, value_error=troubled not in own)


def _first(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _cut(
    base: Expectation, limit: int, *, ending: Ending = _ERROR, value_error: bool = False
) -> Expectation:
    """At most ``limit`` batches, then this ending on all processes."""
    parts = tuple(p[:limit] for p in base.parts)
    endings = (ending,) * len(parts)
    return replace(base, parts=parts, endings=endings, exact=False, value_error=value_error)


def _cut_alone(base: Expectation, limits: list[int | None]) -> Expectation:
    """At most so many batches on each process that has a limit, then an error there."""
    if not any(limit is not None for limit in limits):
        return base
    return replace(
        base,
        parts=tuple(p[:limit] for p, limit in zip(base.parts, limits, strict=True)),
        endings=tuple(
            ending if limit is None else _ERROR
            for ending, limit in zip(base.endings, limits, strict=True)
        ),
        exact=False,
        value_error=False,
    )


def _agreed_end(case: Case, size: int) -> float:
    """Full batches of the shortest shard that ends; a source that fails never comes to its end."""
    whole = [s for s in case.shards if s.fault is None or s.fault.where != "source"]
    return min((s.rows // size for s in whole), default=math.inf)


def _options_differ(case: Case) -> bool:
    agreed = ("batch_size", "drop_last", "paddings", "dtypes")
    first, *others = (case.options_of(p) for p in range(len(case.shards)))
    # A padding of NaN is not equal to itself.
    pairs = [(first.get(name), own.get(name)) for own in others for name in agreed]
    return any(a is not b and a != b for a, b in pairs)


def _schemas_differ(case: Case, base: Expectation) -> int | None:
    """The first batch on which the processes' schemas differ, or one from those before it."""
    options = case.options_of(0)
    # A shard without rows has no schema of its own: it agrees with any.
    own = [
        _schemas(case, p, options.get("batch_size", 256), options.get("dtypes"))
        for p, shard in enumerate(case.shards)
        if shard.rows
    ]
    for k in range(max((len(p) for p in base.parts), default=0) + 1):
        seen = {s for schemas in own for s in schemas[k : k + 1]}
        seen |= {schemas[0] for schemas in own}
        if len(seen) > 1:
            return k
    return None


def _schemas(case: Case, process: int, size: int, dtypes: object) -> list[tuple[object, ...]]:
    """The schema of each batch of a shard; a batch over a change counts as changed."""
    shard = case.shards[process]
    last_process = process == len(case.shards) - 1
    bare = shard.bare or (case.collate == "bare_on_last" and last_process)
    schemas = []
    for k in range(math.ceil(shard.rows / size)):
        last = min((k + 1) * size, shard.rows) - 1
        index = int(np.searchsorted(np.cumsum(shard.sizes), last, side="right"))
        changed = bool(shard.later) and index >= shard.later_from
        columns = shard.later if changed else shard.columns
        schemas.append(
            (bare, *((c.name, str(delivered_dtype(c, dtypes)), c.trailing) for c in columns))
        )
    return schemas


def _limit(case: Case, process: int) -> int | None:
    """The first batch that ``process`` cannot deliver, if any."""
    shard, options = case.shards[process], case.options_of(process)
    size = options.get("batch_size", 256)
    bad_rows = []
    if shard.fault is not None:
        bad_rows.append(sum(shard.sizes[: shard.fault.at]))
    if shard.rows and shard.short:
        bad_rows.append(0)
    for column in shard.columns if shard.rows else ():
        bad = undeliverable(column, process, shard.rows, options.get("dtypes"))
        bad_rows += bad[:1].tolist()
    limits = [row // size for row in bad_rows]
    names = {c.name for c in shard.columns}
    for argument in ("dtypes", "paddings"):
        given = options.get(argument)
        if isinstance(given, Mapping) and set(given) != names:
            limits.append(0)
    return min(limits, default=None)


def _unfit_padding(case: Case, base: Expectation, process: int) -> int | None:
    """The first batch for which ``process`` needs a padding that some column cannot hold."""
    options = case.options_of(process)
    dtypes = options.get("dtypes")
    columns = {c for s in case.shards for c in s.columns}
    fits = all(
        holds(delivered_dtype(c, dtypes), padding_of(c.name, options.get("paddings")))
        for c in columns
    )
    padded = (k for k, part in enumerate(base.parts[process]) if part.padding)
    return None if fits else next(padded, None)
