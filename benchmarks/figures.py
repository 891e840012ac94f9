"""From the times of all processes and rounds to medians and ratios. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Spread:
    """A median and its quartiles."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        """Return the median of `values`, at least one, and the quartiles."""
        if len(values) == 1:
            return Spread(values[0], values[0], values[0])
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return Spread(statistics.median(values), low, high)


@dataclass(frozen=True)
class Figures:
    """What was measured of one contestant in one cell.

    Attributes:
        batch_us: Microseconds a batch: the whole epoch where there is no step, all after the first
            batch where there is one; of the slowest process.
        first_ms: Milliseconds until the first batch; of the slowest process.
        share: Of the time after the first batch, the part in which a process had a batch to step
            on; of the process with the least.
        wait_us: Microseconds a batch that a process waited for it, after the first; the slowest.
        peak_mib: By how much the memory of a process grew during an epoch, at most, in MiB.
    """

    batch_us: Spread
    first_ms: Spread
    share: Spread
    wait_us: Spread
    peak_mib: Spread


def rounds_of(ranks: Sequence[Sequence[Mapping[str, Any]]], name: str) -> list[list[Any]]:
    """Return for each round the epochs of one contestant, one a process."""
    own = [[epoch for epoch in rank if epoch["contestant"] == name] for rank in ranks]
    return [list(epochs) for epochs in zip(*own, strict=True)]


def loop_us(epochs: Sequence[Mapping[str, float]], step_ms: float) -> float:
    """Return microseconds a batch of one round, of the slowest process."""
    if step_ms:
        return max(1e6 * e["rest_s"] / max(1, e["batches"] - 1) for e in epochs)
    return max(1e6 * e["total_s"] / max(1, e["batches"]) for e in epochs)


def figures(rounds: Sequence[Sequence[Mapping[str, Any]]], step_ms: float) -> Figures:
    """Return the figures of one contestant from its rounds."""

    def spread(one: Any) -> Spread:
        return Spread.of([one(epochs) for epochs in rounds])

    return Figures(
        spread(lambda epochs: loop_us(epochs, step_ms)),
        spread(lambda epochs: max(1e3 * e["first_s"] for e in epochs)),
        spread(lambda epochs: min(1 - e["wait_s"] / max(e["rest_s"], 1e-9) for e in epochs)),
        spread(lambda epochs: max(1e6 * e["wait_s"] / max(1, e["batches"] - 1) for e in epochs)),
        spread(lambda epochs: max(e["peak_bytes"] / 2**20 for e in epochs)),
    )


def ratio(
    rounds: Sequence[Sequence[Mapping[str, Any]]],
    others: Sequence[Sequence[Mapping[str, Any]]],
    step_ms: float,
) -> Spread:
    """Return how many times as fast as another a contestant is: a ratio a round, their median."""
    return Spread.of(
        [
            loop_us(other, step_ms) / loop_us(own, step_ms)
            for own, other in zip(rounds, others, strict=True)
        ]
    )
