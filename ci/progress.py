"""How far a run is: which case, how many are left, and for how long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TextIO

from ci.costs import Costs
from ci.suite import Followed
from conformance.plan import Planned

#: Seconds between two lines in a log; a terminal's one line is renewed at once.
_LOG_S = 10.0


def key_of(nodeid: str) -> str:
    """The key of a planned case, from the name of its test."""
    path, _, rest = nodeid.partition("::")
    return f"{path.rpartition('/')[2].removesuffix('.py')}::{rest.partition('[')[2].rstrip(']')}"


class Progress:
    """Says now and then how far a run is."""

    def __init__(self, planned: Sequence[Planned], costs: Costs, workers: int, to: TextIO) -> None:
        self._keys = [p.key for p in planned]
        self._costs = costs
        self._workers = workers
        self._to = to
        self._start_s = time.monotonic()
        self._told_s = self._start_s
        self._known: set[str] = set()
        self._shown = ""

    def tell(self, seen: Followed) -> None:
        """Learn what has ended, and show a line if it is time for one."""
        for nodeid, account in seen.accounts.items():
            if nodeid not in self._known:
                self._known.add(nodeid)
                self._costs.saw(key_of(nodeid), account["duration_s"])
        now_s = time.monotonic()
        if self._to.isatty():
            self._show(f"\r\x1b[K{self.line(seen, now_s)}")
        elif now_s - self._told_s >= _LOG_S:
            self._told_s = now_s
            self._show(f"{self.line(seen, now_s)}\n")

    def line(self, seen: Followed, now_s: float) -> str:
        """How far it is, in one line."""
        done = {key_of(n) for n in (*seen.accounts, *seen.lost)}
        left = [k for k in self._keys if k not in done]
        left_s = self._costs.left_s(left) / self._workers
        bad = sum(r.verdict in ("fail", "hang", "crash") for r in seen.results)
        running = ", ".join(
            f"{key_of(n).rpartition('::')[2]} ({now_s - since_s:.0f} s)"
            for n, since_s in seen.running.items()
        )
        ended = len(self._keys) - len(left)
        return (
            f"{ended} of {len(self._keys)} cases, {_clock(now_s - self._start_s)} gone, about "
            f"{_clock(left_s)} left, {bad} failures so far, known ones too | "
            f"{running or 'starting'}"
        )

    def end(self) -> None:
        """Leave the line."""
        if self._shown and self._to.isatty():
            self._show("\n")

    def _show(self, text: str) -> None:
        self._shown = text
        self._to.write(text)
        self._to.flush()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
