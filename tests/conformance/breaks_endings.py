"""Faults in how a case ends in an error: where, on whom, of what class, in what words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.conformance.breaks import (
    FAULT,
    LONE,
    MISMATCH,
    UNEVEN,
    Break,
)
from tests.conformance.faking import Fake, right


def _fail_with(process: int, message: str, *classes: str) -> Callable[[Fake], None]:
    return lambda fake: fake.epoch(process).fail(message, *classes)


def _stop_on_one(fake: Fake) -> None:
    fake.epoch(0).how, fake.epoch(0).error = "stop", {}


def _deliver_less_on_one(fake: Fake) -> None:
    fake.epoch(1).batches.clear()


def _deliver_too_much(fake: Fake) -> None:
    for process in (0, 1):
        batches = fake.epoch(process).batches
        batches.append(batches[0] if batches else replace(_any_batch(fake, process)))


def _any_batch(fake: Fake, process: int) -> Any:
    plain = replace(fake.case, shards=fake.case.shards[:1] * 2)
    return right(plain, fake.topology).batch(process, 0)


def _fail_in_step(fake: Fake) -> None:
    for process in (0, 1):
        fake.epoch(process).fail("the computation of process 1: row 17 is damaged")
        fake.epoch(process).failed_in_step = True


ENDED_WRONG = (
    Break(
        "one does not raise",
        _stop_on_one,
        set(FAULT.clauses),
        ("process 0 got 1 batches, then stop; process 1 got 1 batches, then ValueError",),
        FAULT,
    ),
    Break(
        "one got less before the error",
        _deliver_less_on_one,
        set(FAULT.clauses),
        ("process 0 got 1 batches, then ValueError", "process 1 got 0 batches, then ValueError"),
        FAULT,
    ),
    Break(
        "more batches than there can be",
        _deliver_too_much,
        {"ERROR-1", "ERROR-4"},
        ("process 0 should get at most 1 batches: process 0 got 2 batches",),
        FAULT,
    ),
    Break(
        "process not named",
        _fail_with(0, "a peer stopped: row 17 is damaged"),
        {"ERROR-4"},
        ("process 0: the error does not name 'process 1': ValueError: a peer stopped",),
        FAULT,
    ),
    Break(
        "another process named",
        _fail_with(1, "process 11 stopped: row 17 is damaged"),
        {"ERROR-4"},
        ("process 1: the error does not name 'process 1': ValueError: process 11 stopped",),
        FAULT,
    ),
    Break(
        "cause not told",
        _fail_with(0, "process 1 stopped"),
        {"ERROR-4"},
        ("process 0: the error does not name 'row 17 is damaged': ValueError: process 1 stopped",),
        FAULT,
    ),
    Break(
        "the step raises, not the iterator",
        _fail_in_step,
        set(FAULT.clauses),
        ("process 0 got 1 batches, then error in the step: ValueError: the computation",),
        FAULT,
    ),
    Break(
        "no ValueError on one",
        _fail_with(1, "columns differ: z", "KeyError", "LookupError"),
        {"SCHEMA-1", "OPTION-1"},
        ("process 1: not a ValueError: KeyError: columns differ: z",),
        MISMATCH,
    ),
    Break(
        "column not named",
        _fail_with(0, "columns differ by a size"),
        {"SCHEMA-5"},
        ("process 0: the error does not name 'z': ValueError: columns differ by a size",),
        MISMATCH,
    ),
    Break(
        "a batch although columns differ",
        _deliver_too_much,
        {"SCHEMA-1", "SCHEMA-5", "OPTION-1"},
        ("process 0 should get at most 0 batches: process 0 got 1 batches",),
        MISMATCH,
    ),
    Break(
        "uneven counts do not raise on one",
        _stop_on_one,
        {"COUNT-4", "COUNT-5", "EMPTY-1"},
        ("process 0", "process 0 got 2 batches, then stop"),
        UNEVEN,
    ),
    Break(
        "uneven counts raise another error",
        _fail_with(0, "uneven", "RuntimeError"),
        {"COUNT-4", "COUNT-5"},
        ("process 0: not a ValueError: RuntimeError: uneven",),
        UNEVEN,
    ),
    Break(
        "leaver not named",
        _fail_with(0, "a peer has left"),
        {"LEAVE-2"},
        ("process 0: the error does not name 'process 1': ValueError: a peer has left",),
        LONE,
    ),
    Break(
        "peer stops",
        _stop_on_one,
        {"LEAVE-2"},
        ("process 0 should end with error", "process 1 got 2 batches, then left"),
        LONE,
    ),
    Break(
        "peer gets too much",
        lambda fake: fake.epoch(0).batches.extend(fake.epoch(0).batches[:1] * 64),
        {"LEAVE-2"},
        ("process 0 got 67 batches; at most 66 are allowed",),
        LONE,
    ),
)
