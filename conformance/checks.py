"""Which checks decide which clause."""

from __future__ import annotations

from conformance.checks_endings import alike, counts, lone_leave, names, threads, value_error
from conformance.checks_placement import moved, shape, sharding, shares, sums
from conformance.checks_rows import dtypes, once, padding, sizes, values
from conformance.checks_split import split_ends, split_once
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
    "SPLIT": (split_ends, split_once),
    "": (*_BASE, sizes, shape, dtypes, values, padding, sums),
}


def checks_of(clause: str) -> tuple[Check, ...]:
    """The checks that decide a clause."""
    group = clause.partition("-")[0]
    return _CHECKS.get(clause) or _CHECKS.get(group) or _CHECKS[""]
