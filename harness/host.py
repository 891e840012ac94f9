"""Looks at the ranks of one machine from outside them, so that it works whatever they do."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.processes import look_at
from harness.watchdog import Sample

STACKS_LIMIT_S = 1.0
NO_STACKS = "no stacks: the process did not answer"
_STACKS_INTERVAL_S = 0.03


@dataclass(frozen=True)
class Watched:
    """One rank of this machine.

    Attributes:
        pid: its process.
        record: the file to which it appends its events.
        stacks: the file to which its faulthandler writes on SIGUSR1.
    """

    pid: int
    record: Path
    stacks: Path


class HostWatch:
    """The ranks of this machine, by their number."""

    def __init__(self, ranks: Mapping[int, Watched]) -> None:
        self._ranks = dict(ranks)

    def sample(self, ranks: Collection[int]) -> dict[int, Sample]:
        """Look at ranks; one that is gone makes no progress."""
        samples = {}
        for rank in ranks:
            seen = look_at(self._ranks[rank].pid)
            size = self._ranks[rank].record.stat().st_size
            samples[rank] = (
                Sample(0.0, record_bytes=size)
                if seen is None
                else Sample(seen.demand_s, seen.stopped, size)
            )
        return samples

    def stacks(self, ranks: Collection[int]) -> dict[int, str]:
        """Take the stacks of all threads; a stopped rank is asked last, and continued for it."""
        stopped = {r for r in ranks if (s := look_at(self._ranks[r].pid)) and s.stopped}
        taken = self._dump(set(ranks) - stopped, [signal.SIGUSR1])
        return {**taken, **self._dump(stopped, [signal.SIGUSR1, signal.SIGCONT])}

    def record(self, rank: int) -> bytes:
        """Read all that the rank has recorded in this run."""
        return self._ranks[rank].record.read_bytes()

    def restart_record(self, rank: int) -> None:
        """Empty the rank's record. It appends, so its next event goes to the new end."""
        os.truncate(self._ranks[rank].record, 0)

    def _dump(self, ranks: Collection[int], signals: Sequence[signal.Signals]) -> dict[int, str]:
        for rank in ranks:
            for each in signals:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._ranks[rank].pid, each)
        deadline_s = time.monotonic() + STACKS_LIMIT_S
        taken = dict.fromkeys(ranks, "")
        waiting = set(ranks)
        while waiting and time.monotonic() < deadline_s:
            time.sleep(_STACKS_INTERVAL_S)
            for rank in list(waiting):
                text = self._ranks[rank].stacks.read_text(errors="replace")
                # Written thread by thread: done when it no longer grows.
                if text and text == taken[rank]:
                    waiting.discard(rank)
                taken[rank] = text
        return {rank: text or NO_STACKS for rank, text in taken.items()}
