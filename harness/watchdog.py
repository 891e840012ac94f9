"""Tells a hang from slow: samples of the unfinished ranks in, a verdict out. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

# An idle JAX process uses well under 1 % of a core, a thread that polls every 10 ms about 1 %.
# A rank that computes is on a core or waits for one (runnable) nearly always.
BUSY_CPU_SHARE = 0.05
BUSY_RUNNABLE_SHARE = 0.15


@dataclass(frozen=True)
class Sample:
    """What is known of one unfinished rank at one moment.

    Attributes:
        cpu_s: CPU seconds that the process has used so far.
        runnable: some thread of it is on a core, waits for one, or waits for a disk.
        stopped: the process is stopped by a signal.
        record_bytes: the size of its record so far.
    """

    cpu_s: float
    runnable: bool = False
    stopped: bool = False
    record_bytes: int = 0


@dataclass(frozen=True)
class _Interval:
    seconds: float
    cpu_s: Mapping[int, float]
    runnable: frozenset[int]


class Watchdog:
    """Says when no unfinished rank has made progress for `stall_s`.

    Progress of any unfinished rank is progress of the gang: a new event, a rank that finished, more
    CPU time in the last `stall_s` than waiting costs, or a thread that would run if it got a core.
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
        self._push(
            _Interval(
                seconds=min(now_s - then_s, self._longest_interval_s),
                cpu_s={rank: s.cpu_s - before[rank].cpu_s for rank, s in samples.items()},
                runnable=frozenset(rank for rank, s in samples.items() if s.runnable),
            )
        )
        return self._window_s >= self._stall_s and not any(map(self._busy, samples))

    @property
    def still_s(self) -> float:
        """Seconds, `stall_s` at most, over which no event came: what the verdict looks at."""
        return self._window_s

    def _push(self, interval: _Interval) -> None:
        self._window.append(interval)
        self._window_s += interval.seconds
        while self._window_s - self._window[0].seconds >= self._stall_s:
            self._window_s -= self._window.popleft().seconds

    def _busy(self, rank: int) -> bool:
        cpu_s = sum(interval.cpu_s[rank] for interval in self._window)
        runnable = sum(rank in interval.runnable for interval in self._window)
        return cpu_s > BUSY_CPU_SHARE * self._window_s or runnable > BUSY_RUNNABLE_SHARE * len(
            self._window
        )
