"""Public reports about what surrounds an iterator: hangs nobody sees, errors that hide the first.

They are regressions on the harness, with real gangs, and know no subject.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness import Gang, Hung, Outcome, Raised, Returned, rank

STALL_STEP = 5
STALL_S = 3.0


@dataclass(frozen=True)
class HarnessEntry:
    """A report, what the processes of a gang do to bring it about, and what must be said of it.

    ``check`` gives words for what is wrong with the outcomes, or none.
    """

    name: str
    trigger: str
    right: str
    processes: int
    act: Callable[[], None]
    check: Callable[[Sequence[Outcome]], str]

    def run(self) -> str:
        """Run it on a gang of its own; words for what is wrong, or none."""
        with Gang(self.processes) as gang:
            return self.check(gang.run(self.act, stall_s=STALL_S, deadline_s=60.0))


def _gather(step: int) -> None:
    import numpy as np
    from jax.experimental import multihost_utils

    rank.record("step", step=step)
    multihost_utils.process_allgather(np.array([step], np.int32))


def _sleeps_at_a_step() -> None:
    for step in range(10):
        if rank.this().rank == 1 and step == STALL_STEP:
            rank.record("step", step=step)
            while True:
                time.sleep(1000)
        _gather(step)


def _sleeper_is_named(outcomes: Sequence[Outcome]) -> str:
    if not all(isinstance(o, Hung) for o in outcomes):
        return "; ".join(o.describe() for o in outcomes)
    why = next(o.why for o in outcomes if isinstance(o, Hung))
    clauses = [c for c in why.split("; ") if "asleep" in c]
    named = any(c.startswith("rank 1 ") and f"step={STALL_STEP}" in c for c in clauses)
    return "" if named else f"rank 1 and step {STALL_STEP} are not named: {why}"


def _several_raise() -> None:
    _gather(0)
    if rank.this().rank >= 2:
        raise OSError(f"shard {rank.this().rank} is damaged")
    _gather(1)


def _first_errors_are_told(outcomes: Sequence[Outcome]) -> str:
    waiting, raised = outcomes[:2], outcomes[2:]
    for o in raised:
        if not (isinstance(o, Raised) and o.message == f"shard {o.rank} is damaged"):
            return f"the loader's own error is lost: {o.describe()}"
    for o in waiting:
        if not (isinstance(o, Hung) and o.why.startswith("ranks 2, 3 raised")):
            return f"the cause does not come first: {o.describe()}"
    return ""


def _first_process_ends_first() -> None:
    _gather(0)
    if rank.this().rank != 0:
        time.sleep(STALL_S * 0.8)
        rank.record("late")


def _all_returned(outcomes: Sequence[Outcome]) -> str:
    whole = all(isinstance(o, Returned) for o in outcomes)
    late = all(any(e.kind == "late" for e in o.events) for o in outcomes[1:])
    return "" if whole and late else "; ".join(o.describe() for o in outcomes)


HARNESS_ENTRIES = (
    HarnessEntry(
        "jax-38503",
        "a process that lives and sleeps for ever at step 5: no error, no time-out anywhere",
        "a watchdog outside of the processes says which one sleeps, and at which step",
        2,
        _sleeps_at_a_step,
        _sleeper_is_named,
    ),
    HarnessEntry(
        "marin-6954-harness",
        "several processes raise in their loaders while the others enter a collective",
        "the errors of those that raised are what is told first, with their text",
        4,
        _several_raise,
        _first_errors_are_told,
    ),
    HarnessEntry(
        "marin-8276",
        "process 0 ends some seconds before the others",
        "that is no failure of anybody: the verdict is from records, not from exits",
        2,
        _first_process_ends_first,
        _all_returned,
    ),
)
