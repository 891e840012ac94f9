"""Tells a hang from slow: samples of the unfinished ranks in, a verdict out. No I/O, no clock."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# Measured, as shares of one core in one process: an idle JAX process, or an idle Ray worker, up to
# 1 %; process 0 while four processes poll its coordination service every 10 ms 7 %; a process that
# computes 100 %, divided by the number of those that want the same core.
BUSY_CPU_SHARE = 0.1
# For a machine with very many of those: a thread that computes is on a core or ready for one all
# the time, an idle one, at a load of seven a core, up to 9 %.
BUSY_DEMAND_SHARE = 0.5
# So a verdict takes ten times `stall_s` at most, on a machine that is ten times overloaded.
LEAST_FAIR_SHARE = 0.1


@dataclass(frozen=True)
class Sample:
    """What is known of one unfinished rank at one moment.

    Attributes:
        cpu_s: CPU seconds used so far, by process id: of the rank's process, and of those that
            work for it, if any.
        demand_s: for each thread of these, by thread id, the seconds so far that it was on a core
            or ready for one.
        waited_s: seconds so far that threads of the rank's process were ready but had no core.
        stopped: the rank's process is stopped by a signal.
        record_bytes: the size of its record so far.
    """

    cpu_s: Mapping[int, float] = field(default_factory=dict)
    demand_s: Mapping[int, float] = field(default_factory=dict)
    waited_s: float = 0.0
    stopped: bool = False
    record_bytes: int = 0


@dataclass(frozen=True)
class _Interval:
    """What each rank's processes and threads have gained between two samples."""

    seconds: float
    fair_s: float
    cpu_s: Mapping[int, Mapping[int, float]]
    demand_s: Mapping[int, Mapping[int, float]]


class Watchdog:
    """Says when no unfinished rank has made progress for `stall_s`.

    Progress of any unfinished rank is progress of the gang: a new event, an end, a process that
    uses more of a core than waiting does, or a thread that would if it had one. So a rank that
    computes for long is slow, and so are the ranks that wait for it.

    Time in which threads of the gang are ready but get no core hardly counts towards `stall_s`: on
    an overloaded machine what takes milliseconds, handed from thread to thread and from process to
    process, takes seconds, and none of them uses much.
    """

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        # When the watcher itself was held up, what it did not see is no evidence of a hang.
        self._longest_interval_s = stall_s / 8
        self._previous: tuple[float, Mapping[int, Sample]] | None = None
        self._window: deque[_Interval] = deque()
        self._wrote: set[int] = set()

    def observe(self, now_s: float, samples: Mapping[int, Sample]) -> bool:
        """Take one sample of every unfinished rank; True when the gang is hung."""
        previous, self._previous = self._previous, (now_s, dict(samples))
        if previous is None:
            return False
        then_s, before = previous
        self._wrote = {
            rank
            for rank in samples.keys() & before.keys()
            if samples[rank].record_bytes != before[rank].record_bytes
        }
        if self._wrote or before.keys() != samples.keys():
            self._window.clear()
            return False
        seconds = min(now_s - then_s, self._longest_interval_s)
        waited_s = sum(max(0.0, s.waited_s - before[r].waited_s) for r, s in samples.items())
        self._window.append(
            _Interval(
                seconds,
                fair_s=max(seconds * LEAST_FAIR_SHARE, seconds - waited_s),
                cpu_s={r: _gains(before[r].cpu_s, s.cpu_s) for r, s in samples.items()},
                demand_s={r: _gains(before[r].demand_s, s.demand_s) for r, s in samples.items()},
            )
        )
        while self._fair_s() - self._window[0].fair_s >= self._stall_s:
            self._window.popleft()
        return self._fair_s() >= self._stall_s and not any(map(self.is_busy, samples))

    def is_busy(self, rank: int) -> bool:
        """Whether a rank made progress lately: an event, or more of a core than waiting needs."""
        if rank in self._wrote:
            return True
        cpu_s = _largest_total(interval.cpu_s[rank] for interval in self._window)
        demand_s = _largest_total(interval.demand_s[rank] for interval in self._window)
        window_s = sum(interval.seconds for interval in self._window)
        return cpu_s > BUSY_CPU_SHARE * window_s or demand_s > BUSY_DEMAND_SHARE * window_s

    def _fair_s(self) -> float:
        return sum(interval.fair_s for interval in self._window)


def _gains(before: Mapping[int, float], now: Mapping[int, float]) -> dict[int, float]:
    # What has just come has gained nothing yet; what has gone is left out.
    return {each: now[each] - before[each] for each in now.keys() & before.keys()}


def _largest_total(gains: Iterable[Mapping[int, float]]) -> float:
    totals: defaultdict[int, float] = defaultdict(float)
    for gain in gains:
        for each, seconds in gain.items():
            totals[each] += seconds
    return max(totals.values(), default=0.0)
