"""Looks at the ranks of one machine from outside them, so that it works whatever they do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from harness.output import Tails
from harness.processes import Process, ProcessState
from harness.stacks import with_called
from harness.watchdog import Sample

STACKS_LIMIT_S = 1.0
ENDING_LIMIT_S = 0.5
NO_STACKS = "no stacks: the process did not answer"
_STACKS_INTERVAL_S = 0.03


@dataclass(frozen=True)
class RankFiles:
    """Where a rank writes.

    Attributes:
        record: a file to which it appends its events.
        stacks: a file to which its faulthandler writes on SIGUSR1.
        output: a named pipe for its stdout and stderr.
        requests: a named pipe by which it is asked what it has called.
        called: a file to which it writes that.
    """

    record: str
    stacks: str
    output: str
    requests: str
    called: str


class HostWatch:
    """The ranks of this machine, by their number: their files, and looks at their processes."""

    def __init__(self, directory: Path, ranks: Iterable[int]) -> None:
        """Make the files of ranks that are about to start."""
        self.files: dict[int, RankFiles] = {}
        self._processes: dict[int, Process] = {}
        self._requests: dict[int, int] = {}
        pipes: dict[int, int] = {}
        for rank in ranks:
            paths = {f.name: directory / f"{rank}.{f.name}" for f in fields(RankFiles)}
            for name in ("record", "stacks", "called"):
                paths[name].touch()
            for name, ends in (("output", pipes), ("requests", self._requests)):
                os.mkfifo(paths[name])
                # Open both ways: so it never ends, whoever comes and goes at its other end.
                ends[rank] = os.open(paths[name], os.O_RDWR | os.O_NONBLOCK)
            self.files[rank] = RankFiles(**{name: str(path) for name, path in paths.items()})
        self._tails = Tails(pipes)

    def add(self, rank: int, pid: int) -> None:
        """Say which process a rank is."""
        self._processes[rank] = Process(pid)

    def process(self, rank: int) -> Process:
        """Give the process that a rank is."""
        return self._processes[rank]

    def all_ready(self) -> bool:
        """Whether every rank's process lives, none is stopped, and their files are there."""
        return all(each.is_ready() for each in self._processes.values()) and all(
            os.path.exists(files.record) for files in self.files.values()
        )

    def begin_run(self) -> None:
        """Forget records and output of the run before."""
        self._tails.clear()
        for files in self.files.values():
            # Ranks append: their next event goes to the new end.
            os.truncate(files.record, 0)

    def sample(self, ranks: Collection[int]) -> dict[int, Sample]:
        """Look at ranks; one that is gone makes no progress."""
        samples = {}
        for rank in ranks:
            seen = self._look_at(rank)
            size = _size(self.files[rank].record)
            samples[rank] = (
                Sample(record_bytes=size)
                if seen is None
                else Sample(
                    {self._processes[rank].pid: seen.cpu_s},
                    seen.demand_s,
                    seen.waited_s,
                    seen.stopped,
                    size,
                )
            )
        return samples

    def stacks(self, ranks: Collection[int]) -> dict[int, str]:
        """Take the stacks of all threads; a stopped rank is asked last, and continued for it."""
        stopped = {r for r in ranks if (seen := self._look_at(r)) and seen.stopped}
        return {**self._dump(set(ranks) - stopped), **self._dump(stopped)}

    def record(self, rank: int) -> bytes:
        """Read all that the rank has recorded in this run; nothing if the file was removed."""
        return _read(self.files[rank].record)

    def output(self, rank: int) -> str:
        """Give the tail of what the rank has written to stdout and stderr in this run."""
        return self._tails.text(rank)

    def ended(self, ranks: Collection[int]) -> dict[int, bool]:
        """Whether these ranks' processes have ended."""
        return {rank: self._look_at(rank) is None for rank in ranks}

    def ending(self, rank: int) -> tuple[int | None, str | None]:
        """Give exit status or signal of a process that has ended, where the kernel tells."""
        process = self._processes.get(rank)
        status = None if process is None else process.wait_status(ENDING_LIMIT_S)
        if status is None:
            return None, None
        code = os.waitstatus_to_exitcode(status)
        return (code, None) if code >= 0 else (None, signal.Signals(-code).name)

    def kill(self) -> None:
        """SIGKILL the ranks that have not ended."""
        for process in self._processes.values():
            process.signal(signal.SIGKILL)

    def close(self) -> None:
        """Let go of the processes, and stop reading output."""
        for process in self._processes.values():
            process.close()
        self._processes = {}
        self._tails.close()
        for pipe in self._requests.values():
            os.close(pipe)
        self._requests = {}

    def _look_at(self, rank: int) -> ProcessState | None:
        process = self._processes.get(rank)
        return None if process is None else process.look_at()

    def _dump(self, ranks: Collection[int]) -> dict[int, str]:
        for rank in ranks:
            # It may have removed its files, or be full of requests that it has not answered.
            with suppress(FileNotFoundError, BlockingIOError):
                os.truncate(self.files[rank].called, 0)
                os.write(self._requests[rank], b"?")
            self._processes[rank].signal_main_thread(signal.SIGUSR1)
            self._processes[rank].signal(signal.SIGCONT)
        deadline_s = time.monotonic() + STACKS_LIMIT_S
        taken = dict.fromkeys(ranks, "")
        waiting = set(ranks)
        while waiting and time.monotonic() < deadline_s:
            time.sleep(_STACKS_INTERVAL_S)
            for rank in list(waiting):
                text = _read(self.files[rank].stacks).decode(errors="replace")
                # Written thread by thread: done when it no longer grows. What is called is told
                # only if no other thread keeps Python from running.
                if text and text == taken[rank] and _read(self.files[rank].called):
                    waiting.discard(rank)
                taken[rank] = text
        return {
            rank: with_called(text, _read(self.files[rank].called).decode(errors="replace"))
            if text
            else NO_STACKS
            for rank, text in taken.items()
        }


# A rank, or what cleans temporary files, may remove them during a run.
def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return b""
