"""What goes into a case, in one line for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from itertools import groupby

from conformance.model import ID, Case, Column, Shard, Split, Use, X


def in_words(case: Case) -> str:
    """Options, then the rows of each process and the pieces they come in, columns, use.

    `batch_size=4; process 0: 8 rows (pieces: 2 of 4); process 1: 3 rows (pieces: 1 of 3)`.
    """
    processes = range(len(case.shards))
    parts = [_options(case.options_of(0)) if not case.own_options else ""]
    for process in processes:
        own = [_options(case.options_of(process))] if case.own_options else []
        parts.append(f"process {process}: {_shard(case.shards[process], own)}")
    if case.split is not None:
        parts.append(_split(case.split))
    shared = {s.columns for s in case.shards}
    if len(shared) == 1 and case.split is None:
        parts.append(f"columns {_columns(case.shards[0].columns)}")
    elif case.split is None:
        parts += [f"columns of process {p} {_columns(case.shards[p].columns)}" for p in processes]
    parts += [f"collate_fn {case.collate!r}"] if case.collate else []
    parts += [f"sharding {case.sharding!r}"] if case.sharding else []
    parts += ["every process reads the rows of process 0"] if case.same_rows else []
    parts.append(_use(case.use))
    return "; ".join(part for part in parts if part)


def _options(options: dict[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


def _shard(shard: Shard, more: list[str]) -> str:
    words = [
        f"{shard.rows} rows (pieces: {_runs(shard.sizes)})" if shard.sizes else "no rows",
        *more,
    ]
    if shard.fault is not None:
        words.append(f"its {shard.fault.where} raises at piece {shard.fault.at}")
    if shard.later:
        words.append(f"from piece {shard.later_from} on columns {_columns(shard.later)}")
    words += ["as one array"] if shard.bare else []
    words += [f"column {shard.short!r} lacks 2 rows of each piece"] if shard.short else []
    words += [f"{shard.delay_s:g} s before each piece"] if shard.delay_s else []
    words += ["all pieces in one buffer"] if shard.reuse is not None else []
    return ", ".join(word for word in words if word)


def _runs(sizes: Iterable[int]) -> str:
    """Equal sizes that follow each other, counted: `3 of 4, 1 of 2`."""
    runs = [(size, len(list(same))) for size, same in groupby(sizes)]
    return ", ".join(f"{n} of {size}" for size, n in runs)


def _columns(columns: tuple[Column, ...]) -> str:
    return ", ".join(
        f"{c.name} {c.dtype}"
        + (f" {list(c.trailing)}" if c.trailing else "")
        + ("" if c.values == "coded" else f" ({c.values})")
        for c in columns
    )


def _split(split: Split) -> str:
    words = f"one dataset of blocks ({_runs(split.blocks)} rows), shared out by {split.how!r}"
    words += f" at {list(split.at)}" if split.at else ""
    gone = [f"{len(rows)} rows of process {p}" for p, rows in enumerate(split.dropped) if rows]
    words += f", less {', '.join(gone)}" if gone else ""
    return f"{words}; columns {_columns((ID, X))}"


def _use(use: Use) -> str:
    """What the consumer does that is not as in most cases."""
    plain = Use()
    changed = [
        f"{f.name}={getattr(use, f.name)!r}"
        for f in fields(use)
        if getattr(use, f.name) != getattr(plain, f.name)
    ]
    return f"use: {', '.join(changed)}" if changed else ""
