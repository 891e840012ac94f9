"""The right answer for any case: rows of each process, sizes of its pieces, and options, in numpy.

Nothing here is shared with an implementation. Where timing may decide (how many batches precede an
error), the answer is a relation: at most ``len(batches)``, and the same number on every process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import ml_dtypes  # noqa: F401  numpy learns bfloat16 and its kin from it
import numpy as np
from numpy.typing import NDArray

from conformance.model import Case, Column, Shard
from conformance.rows import Array, cells

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

    ``parts[process][k]`` is that process's part of batch ``k``. ``exact``: exactly these batches;
    otherwise at most these, and the same number on every process unless ``together`` is off.
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
        return Expectation(
            tuple(_alone(r, size, options) for r in rows), (_STOP,) * processes, together=False
        )
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


def _alone(rows: int, size: int, options: Mapping[str, Any]) -> tuple[Part, ...]:
    if options.get("drop_last"):
        return _parts(rows, size, rows // size, pad=False)
    return _parts(rows, size, math.ceil(rows / size), pad=options.get("paddings") is not None)


def expect_case(case: Case, devices: int) -> Expectation:
    """The answer for one epoch of a case whose shards are known row by row (no ``split``)."""
    processes = range(len(case.shards))
    common = case.options_of(0)
    rows = [shard.rows for shard in case.shards]
    base = expect(rows, common, devices)
    if common.get("batch_size", 256) <= 0:
        return base
    if common.get("local_shuffle_buffer_size"):
        base = replace(base, ordered=False)
    limits = [_limit(case, p) for p in processes]
    disagreement = _disagreement(case, base)
    unfit = _unfit_padding(case, base)
    known = [limit for limit in (*limits, disagreement, unfit) if limit is not None]
    if not known:
        return base
    troubled = min(known)
    return replace(
        base,
        parts=tuple(p[:troubled] for p in base.parts),
        endings=(_ERROR,) * len(case.shards),
        exact=False,
        value_error=troubled == disagreement and troubled not in (*limits, unfit),
    )


def _disagreement(case: Case, base: Expectation) -> int | None:
    """The first batch on which the processes' options or schemas differ, if any."""
    agreed = ("batch_size", "drop_last", "paddings", "dtypes")
    options = [case.options_of(p) for p in range(len(case.shards))]
    if any(o.get(name) != options[0].get(name) for o in options for name in agreed):
        return 0
    if case.collate == "bare_on_last" and len(case.shards) > 1:
        return 0
    size = options[0].get("batch_size", 256)
    # A shard without rows has no schema of its own: it agrees with any.
    own = [_schemas(s, size, options[0].get("dtypes")) for s in case.shards if s.rows]
    for k in range(max((len(p) for p in base.parts), default=0) + 1):
        seen = {s for schemas in own for s in schemas[k : k + 1]}
        seen |= {schemas[0] for schemas in own}
        if len(seen) > 1:
            return k
    return None


def _schemas(shard: Shard, size: int, dtypes: object) -> list[tuple[object, ...]]:
    """The schema of each batch of a shard; a batch over a change counts as changed."""
    schemas = []
    for k in range(math.ceil(shard.rows / size)):
        last = min((k + 1) * size, shard.rows) - 1
        index = int(np.searchsorted(np.cumsum(shard.sizes), last, side="right"))
        changed = bool(shard.later) and index >= shard.later_from
        columns = shard.later if changed else shard.columns
        schemas.append(
            (shard.bare, *((c.name, str(delivered_dtype(c, dtypes)), c.trailing) for c in columns))
        )
    return schemas


def _limit(case: Case, process: int) -> int | None:
    """The first batch that ``process`` cannot deliver, if any."""
    shard, options = case.shards[process], case.options_of(process)
    size = options.get("batch_size", 256)
    bad_rows = []
    if shard.fault is not None:
        bad_rows.append(sum(shard.sizes[: shard.fault.at]))
    if shard.short:
        bad_rows.append(0)
    for column in shard.columns:
        if shard.rows:
            bad = undeliverable(column, process, shard.rows, options.get("dtypes"))
            bad_rows += bad[:1].tolist()
    limits = [row // size for row in bad_rows if row < shard.rows or shard.fault]
    names = {c.name for c in shard.columns}
    for argument in ("dtypes", "paddings"):
        given = options.get(argument)
        if isinstance(given, Mapping) and set(given) != names:
            limits.append(0)
    return min(limits, default=None)


def _unfit_padding(case: Case, base: Expectation) -> int | None:
    """The first batch for which some process needs a padding that its column cannot hold."""
    options = case.options_of(0)
    paddings = options.get("paddings")
    if paddings is None or options.get("drop_last"):
        return None
    fits = all(
        _holds(delivered_dtype(c, options.get("dtypes")), padding_of(c.name, paddings))
        for s in case.shards
        for c in s.columns
    )
    padded = (k for part in base.parts for k, p in enumerate(part) if p.padding)
    return None if fits else min(padded, default=None)


def padding_of(column: str, paddings: object) -> Any:
    """The padding of a column, from one value or a mapping; None where a mapping lacks it."""
    return paddings.get(column) if isinstance(paddings, Mapping) else paddings


def delivered_dtype(column: Column, dtypes: Any) -> np.dtype[Any]:
    """The dtype that a column must arrive in: what was asked for, or the source's, as in JAX."""
    asked = dtypes.get(column.name) if isinstance(dtypes, Mapping) else dtypes
    own: np.dtype[Any] = np.dtype(column.dtype if asked is None else asked)
    narrow = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
    return np.dtype(narrow.get(own.name, own.name))


def _holds(dtype: np.dtype[Any], value: Any) -> bool:
    if value is None or dtype.kind not in "iub":
        return True
    if dtype.kind == "b":
        return value in (0, 1)
    info = np.iinfo(dtype)
    return float(value).is_integer() and info.min <= value <= info.max


def undeliverable(column: Column, process: int, rows: int, dtypes: object) -> NDArray[np.int64]:
    """Rows of a column that cannot arrive unchanged in the dtype they must arrive in."""
    own = cells(column, process, np.arange(rows))
    if own.dtype.kind in "OUSMm":
        return np.arange(rows)
    target = delivered_dtype(column, dtypes)
    flat: NDArray[Any] = own.reshape(rows, int(np.prod(column.trailing, dtype=np.int64)))
    if target.kind in "iu" and own.dtype.kind in "iu":
        info = np.iinfo(target)
        bad = ((flat < info.min) | (flat > info.max)).any(axis=1)
    elif own.dtype.kind == "f" and target.kind not in "iub":
        with np.errstate(over="ignore"):
            bad = (np.isfinite(flat) & ~np.isfinite(flat.astype(target))).any(axis=1)
    else:
        bad = np.zeros(rows, bool)
    return np.flatnonzero(bad)


def delivered(column: Column, process: int, part: Part, options: Mapping[str, Any]) -> Array:
    """The array of a column that ``process`` must find in its part of a batch.

    Shape ``(part.size, *trailing)``, in the delivered dtype.
    """
    target = delivered_dtype(column, options.get("dtypes"))
    real = cells(column, process, np.asarray(part.rows, np.int64)).astype(target)
    if not part.padding:
        return real
    fill = padding_of(column.name, options.get("paddings"))
    return np.concatenate([real, np.full((part.padding, *column.trailing), fill, target)])
