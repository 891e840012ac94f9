"""Which checks decide which clause."""

from __future__ import annotations

from conformance.checks_endings import alike, counts, lone_leave, names, threads, value_error
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
from conformance.checks_rows import (
    dtypes,
    once,
    own_rows,
    padding,
    real_first,
    real_rows,
    sizes,
    values,
)
from conformance.checks_split import split_ends, split_once
from conformance.trial import Check

#: One miscount fails many clauses by these, before what each asks for itself is looked at.
COUNTED: tuple[Check, ...] = (counts, value_error)
#: Without these nothing else is shown: the batches that there should be, and the right ending.
_BASE = COUNTED
_NAMED: tuple[Check, ...] = (counts, names)
_ALL: tuple[Check, ...] = (*_BASE, sizes, shape, dtypes, values, padding, sums)
#: By clause, else by group, else all that is delivered: each clause is given what its sentence
#: speaks of, so that one fault does not fail clauses that have nothing to say about it.
_CHECKS: dict[str, tuple[Check, ...]] = {
    "SIZE": _BASE,
    "SIZE-1": (*_BASE, sizes, own_rows),
    "SIZE-4": (*_BASE, sizes),
    "COUNT": _BASE,
    "COUNT-1": (*_BASE, values),
    "COUNT-6": _ALL,
    "COUNT-7": (*_BASE, sizes, values),
    "EMPTY": _BASE,
    "EMPTY-1": (alike,),
    "EMPTY-2": (*_BASE, sizes, shape, dtypes, padding, values),
    "PAD": (*_BASE, sizes, padding),
    "PAD-3": (*_BASE, real_first),
    "PAD-4": _BASE,
    "PAD-5": _BASE,
    "PAD-6": _NAMED,
    "PLACE-1": (*_BASE, shape),
    "PLACE-2": (*_BASE, sharding, shares),
    "PLACE-3": (*_BASE, values, sums),
    "PLACE-4": (*_BASE, moved),
    "DTYPE": (*_BASE, dtypes),
    "DTYPE-4": _NAMED,
    "VALUE": (*_BASE, values, sums),
    "VALUE-3": _NAMED,
    "VALUE-4": _NAMED,
    "VALUE-5": _NAMED,
    "VALUE-7": _NAMED,
    "ORDER-1": (*_BASE, values, once),
    "ORDER-2": (*_BASE, once),
    "ORDER-3": (*_BASE, sizes),
    "ERROR": (counts,),
    "ERROR-4": _NAMED,
    "SCHEMA": _BASE,
    "SCHEMA-5": _NAMED,
    "OPTION": _BASE,
    "OPTION-4": _NAMED,
    "OPTION-5": _ALL,
    "LEAVE-2": (*_NAMED, lone_leave),
    "LEAVE-3": (counts, threads),
    "SYNC-2": (*_BASE, sizes, padding),
    "SYNC-3": _BASE,
    "COLLATE": _ALL,
    "TREE": (counts, trees, shape, dtypes, values, padding),
    "MASK": (counts, masked, real_rows),
    "SHARD": (counts, sharded, values, sums),
    "SHARD-4": (all_error,),
    "LEDGER": (counts, ledger),
    "EMPTY-6": (counts, warned_once),
    "TWO-2": (counts, values),
    "TWO-3": (own_or_error,),
    "PEER": (peers_lost,),
    "EPOCH-4": (all_error,),
    "SPLIT-4": (alike,),
    "SPLIT": (split_ends, split_once),
    "SPLIT-3": (split_ends,),
}


def checks_of(clause: str) -> tuple[Check, ...]:
    """The checks that decide a clause."""
    group = clause.partition("-")[0]
    return _CHECKS.get(clause) or _CHECKS.get(group) or _ALL
