"""Which checks decide which clause."""

from __future__ import annotations

from conformance.checks_counts import (
    alike,
    counts,
    lone_leave,
    names,
    sizes,
    threads,
    value_error,
)
from conformance.checks_extended import (
    all_error,
    ledger,
    masked,
    own_or_error,
    peers_lost,
    sharded,
    trees,
    warned_once,
)
from conformance.checks_placement import moved, shape, sharding, shares, sums
from conformance.checks_split import split_alike, split_counts, split_delivered
from conformance.checks_values import dtypes, once, padding, values
from conformance.trial import Check

_BASE: tuple[Check, ...] = (counts, value_error)
_CHECKS: dict[str, tuple[Check, ...]] = {
    "SIZE": (*_BASE, sizes),
    "COUNT": (*_BASE, sizes),
    "EMPTY": (*_BASE, sizes),
    "EMPTY-1": (alike,),
    "EMPTY-2": (*_BASE, sizes, shape, dtypes, padding, values),
    "PAD": (*_BASE, sizes, padding),
    "PAD-3": (*_BASE, sizes, values, padding),
    "PAD-6": (counts, names),
    "PLACE-1": (*_BASE, shape),
    "PLACE-2": (*_BASE, sharding, shares),
    "PLACE-3": (*_BASE, sizes, shares, values, padding, sums),
    "PLACE-4": (*_BASE, moved, sums),
    "DTYPE": (*_BASE, dtypes),
    "DTYPE-4": (counts, names),
    "VALUE": (*_BASE, values, sums),
    "ORDER-1": (*_BASE, sizes, values, padding),
    "ORDER-2": (*_BASE, once),
    "ORDER-3": (*_BASE, sizes),
    "ERROR": (counts,),
    "SCHEMA": (*_BASE, sums),
    "OPTION": (*_BASE, values),
    "VALUE-3": (counts, names),
    "VALUE-4": (counts, names),
    "VALUE-5": (counts, names),
    "VALUE-7": (counts, names),
    "ERROR-4": (counts, names),
    "SCHEMA-5": (counts, names),
    "OPTION-4": (counts, names),
    "LEAVE-2": (counts, names, lone_leave),
    "LEAVE-3": (counts, threads),
    "SPLIT-4": (split_alike,),
    "SPLIT": (split_counts, split_delivered),
    "COLLATE": (*_BASE, shape, dtypes, values, padding, sums),
    "TREE": (counts, trees, shape, dtypes, values, padding),
    "MASK": (counts, masked),
    "SHARD": (counts, sharded, values, sums),
    "SHARD-4": (all_error,),
    "LEDGER": (counts, ledger),
    "EMPTY-6": (counts, warned_once),
    "TWO-2": (counts, values),
    "PEER": (peers_lost,),
    "TWO-3": (own_or_error,),
    "EPOCH-4": (all_error,),
    "": (*_BASE, sizes, shape, dtypes, values, padding, sums),
}


def checks_of(clause: str) -> tuple[Check, ...]:
    """The checks that decide a clause."""
    group = clause.partition("-")[0]
    return _CHECKS.get(clause) or _CHECKS.get(group) or _CHECKS[""]
