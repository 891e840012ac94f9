"""What a check is given: one run of one case, with what was expected and what was seen. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.collates import PATHS
from conformance.model import Case, Column, Topology
from conformance.observations import Seen, SeenBatch, SeenEpoch
from conformance.oracle import Expectation, Part
from conformance.rows import Array


@dataclass(frozen=True)
class Trial:
    """One run of one case: what was expected of each epoch and what each process saw."""

    case: Case
    topology: Topology
    expected: dict[int, Expectation]
    seen: list[Seen]

    def epochs(self) -> Iterator[tuple[int, Expectation, list[SeenEpoch]]]:
        """Each epoch: its number, what was expected, and what each process saw of it."""
        for number, expectation in self.expected.items():
            yield number, expectation, [s.epochs.get(number, SeenEpoch()) for s in self.seen]

    def batches(self) -> Iterator[tuple[str, int, Part, SeenBatch]]:
        """Each batch that was both expected and seen: where, process, its part, the batch."""
        for number, expectation, epochs in self.epochs():
            for process, epoch in enumerate(epochs):
                for k, (part, batch) in enumerate(
                    zip(expectation.parts[process], epoch.batches, strict=False)
                ):
                    yield at(self, number, process, k), process, part, batch


#: Gives words for the first thing that is wrong, or none.
Check = Callable[[Trial], str]


def at(trial: Trial, epoch: int, process: int | None = None, k: int | None = None) -> str:
    """Name a process and its batch ``k``, where given, and the epoch where there are several."""
    where = [f"epoch {epoch}"] if len(trial.expected) > 1 else []
    where += [] if process is None else [f"process {process}"]
    where += [] if k is None else [f"batch {k}"]
    return ", ".join(where)


def endings(epochs: Sequence[SeenEpoch]) -> str:
    """What each process got of an epoch, and how it ended, in words."""
    return "; ".join(
        f"process {p} got {e.count} batches, then {e.ending()}" for p, e in enumerate(epochs)
    )


def columns_of(case: Case, process: int) -> tuple[Column, ...]:
    """The columns that a process's batches must have: its own, or its peers' if it has no rows."""
    if case.delivers:
        return case.delivers
    donor = next((s for s in (case.shards[process], *case.shards) if s.rows), case.shards[process])
    return donor.columns


def key_of(case: Case, process: int, column: Column) -> str:
    """The name under which a column is in a process's batches; empty for a bare array."""
    paths = PATHS.get(case.collate)
    if paths is not None:
        return paths[column.name]
    return "" if case.shards[process].bare else column.name


def differ(got: Array, want: Array, first: int) -> str:
    """Words for the first row that differs; dtypes may."""
    if got.shape != want.shape:
        return f"of shape {got.shape}, expected {want.shape}"
    if (got == want).all():
        return ""
    wrong = np.argwhere((got != want) & ~((got != got) & (want != want)))  # noqa: PLR0124  NaN
    if not len(wrong):
        return ""
    at = tuple(wrong[0].tolist())
    row = (at[0] + first, *at[1:])
    return f"at row {row[0] if len(row) == 1 else row}: got {got[at]}, expected {want[at]}"
