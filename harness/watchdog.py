"""Tells a hang from slow: samples of the unfinished ranks in, a verdict out. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

# Measured, as shares of one core: an idle JAX process 0.5 %, four processes that poll the
# coordination service every 10 ms 13 % in process 0, a process that computes 100 %, on a loaded
# machine too.
BUSY_SHARE = 0.1


@dataclass(frozen=True)
class Sample:
    """What is known of one unfinished rank at one moment.

    Attributes:
        demand_s: seconds that its threads have spent on a core or ready to run but without a
            core, added up over threads, since the process began.
        stopped: the process is stopped by a signal.
        record_bytes: the size of its record so far.
    """

    demand_s: float
    stopped: bool = False
    record_bytes: int = 0


@dataclass(frozen=True)
class _Interval:
    seconds: float
    gains_s: Mapping[int, float]


class Watchdog:
    """Says when no unfinished rank has made progress for `stall_s`.

    Progress of any unfinished rank is progress of the gang: a new event, an end, or more demand
    for a core in the last `stall_s` than waiting needs. So a rank that computes for long is slow,
    and so are the ranks that wait for it.
    """

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        # When the watcher itself was held up, what it did not see is no evidence of a hang.
        self._longest_interval_s = stall_s / 8
        self._previous: tuple[float, Mapping[int, Sample]] | None = None
        self._window: deque[_Interval] = deque()
        self._window_s = 0.0

    def observe(self, now_s: float, samples: Mapping[int, Sample]) -> bool:
        """Take one sample of every unfinished rank; True when the gang is hung."""
        previous, self._previous = self._previous, (now_s, dict(samples))
        if previous is None:
            return False
        then_s, before = previous
        if before.keys() != samples.keys() or any(
            sample.record_bytes != before[rank].record_bytes for rank, sample in samples.items()
        ):
            self._window.clear()
            self._window_s = 0.0
            return False
        # A thread that ends takes its share of the demand away: never count that as negative.
        gains_s = {r: max(0.0, s.demand_s - before[r].demand_s) for r, s in samples.items()}
        self._push(_Interval(min(now_s - then_s, self._longest_interval_s), gains_s))
        return self._window_s >= self._stall_s and not any(map(self._busy, samples))

    @property
    def still_s(self) -> float:
        """Seconds, about `stall_s` at most, over which no event and no end came."""
        return self._window_s

    def _push(self, interval: _Interval) -> None:
        self._window.append(interval)
        self._window_s += interval.seconds
        while self._window_s - self._window[0].seconds >= self._stall_s:
            self._window_s -= self._window.popleft().seconds

    def _busy(self, rank: int) -> bool:
        gain_s = sum(interval.gains_s[rank] for interval in self._window)
        return gain_s > BUSY_SHARE * self._window_s
