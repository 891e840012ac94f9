"""Every fault on real ranks, again and again: its own outcome and verdict, nothing left.

python -m tests.harness.faults_matrix --backend local --times 20 --load
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Died, Gang, Hung, Outcome, Raised, Returned, Undecided, guardian, rank
from harness.faults import (
    Cut,
    Delay,
    Exit,
    Fault,
    Kill,
    Leave,
    Raise,
    Schedule,
    Starve,
    Stop,
    point,
)
from harness.verdict import Verdict, verdict
from tests.harness import cases
from tests.harness.places import LEFT_LIMIT_S, NAMES, place

BATCHES = 4
AT = 2
# Long against what a loaded machine may hold up, since one who comes later misses it.
BARRIER_S = 3.0
PATIENT_S = BARRIER_S + 1.5


def loop(meet: str, compute_s: float) -> int:
    """Do what a training loop does: a batch, some work, a computation of all processes."""
    for k in range(BATCHES):
        rank.phase("next", k)
        if point("batch", k):
            return k
        rank.record("batch", batch=k, shapes={"x": [8, 4]}, dtypes={"x": "float32"})
        work_s = compute_s if (rank.this().rank, k) == (1, AT) else 0.0
        end_s = time.thread_time() + work_s
        while time.thread_time() < end_s:
            pass
        rank.phase("step", k)
        if meet == "barrier":
            wait_for_all(k)
        else:
            cases.gather()
    rank.phase("done")
    return BATCHES


def wait_for_all(k: int) -> None:
    """Wait in the coordination service until all processes do; raises after `BARRIER_S`."""
    from jax._src.distributed import global_state

    client: Any = global_state.client
    client.wait_at_barrier(f"{os.environ['MATRIX_RUN']}-{k}", int(1000 * BARRIER_S))


@dataclass(frozen=True)
class Case:
    """One fault, or several, and what must become of the two ranks."""

    name: str
    faults: tuple[Fault, ...]
    ends: tuple[type[Outcome], type[Outcome]]
    word: str
    ranks: tuple[int, ...] = (1,)
    meet: str = "gather"
    compute_s: float = 0.0
    deadline_s: float = 60.0
    stall_s: float | None = None
    #: What must be in the line that says why.
    because: str = ""
    first: int | None = None

    @property
    def batch(self) -> int | None:
        """The batch that the verdict must name."""
        return None if self.word == "ok" else AT


def at(kind: type[Fault], who: int = 1, **own: Any) -> Fault:
    """Make a fault at the batch that all cases have it at."""
    return kind(rank=who, batch=AT, **own)


CASES = (
    Case("none", (), (Returned, Returned), "ok", ()),
    Case(
        "raise",
        (at(Raise, error="ValueError", message="no more rows"),),
        (Hung, Raised),
        "one-sided error",
        because="ValueError: no more rows",
        first=1,
    ),
    Case(
        "raise-both",
        (at(Raise, error="ValueError"), at(Delay, 0, for_s=1.5), at(Raise, 0, error="KeyError")),
        (Raised, Raised),
        "one-sided error",
        because="ValueError",
        first=1,
        stall_s=PATIENT_S,
    ),
    Case(
        "delay",
        (at(Delay, for_s=0.5),),
        (Returned, Returned),
        "ok",
        (),
        because="in spite of delay of rank 1 at batch 2 for 0.5 s",
    ),
    Case("sleep", (at(Delay),), (Hung, Hung), "missing rank", because="is asleep"),
    Case(
        "pause",
        (at(Stop, for_s=0.5),),
        (Returned, Returned),
        "ok",
        (),
        because="in spite of stop of rank 1 at batch 2 for 0.5 s",
    ),
    Case("stop", (at(Stop),), (Hung, Hung), "stopped", because="SIGSTOP", first=1),
    Case("kill", (at(Kill),), (Raised, Died), "died", first=1),
    Case("exit", (at(Exit, status=3),), (Raised, Died), "died", first=1),
    Case("leave", (at(Leave),), (Hung, Returned), "count mismatch", because="rank 0 3; rank 1 2"),
    Case(
        "starve",
        (at(Starve, share=0.1),),
        (Undecided, Undecided),
        "slow",
        compute_s=1.5,
        deadline_s=6.0,
        stall_s=6.0,
    ),
    Case(
        "cut",
        (at(Cut),),
        (Raised, Hung),
        "missing rank",
        meet="barrier",
        because="did not come",
        stall_s=PATIENT_S,
    ),
    Case(
        "brief-cut",
        (at(Cut, for_s=0.5),),
        (Returned, Returned),
        "ok",
        (),
        meet="barrier",
        stall_s=PATIENT_S,
    ),
)


def run(gang: Gang, case: Case, stall_s: float) -> tuple[Verdict, float | None]:
    """Run one case; returns the verdict, and the seconds from the first fault until it."""
    schedule = Schedule(case.faults)
    outcomes = gang.run(
        schedule.around(_in_run),
        secrets.token_hex(4),
        case.meet,
        case.compute_s,
        deadline_s=case.deadline_s,
        stall_s=case.stall_s or stall_s,
    )
    found = verdict(outcomes)
    now_s = time.monotonic()
    faults_s = [e.t_s for o in outcomes for e in o.events if e.kind == "fault"]
    return found, now_s - min(faults_s) if faults_s else None


def _in_run(name: str, meet: str, compute_s: float) -> int:
    os.environ["MATRIX_RUN"] = name
    return loop(meet, compute_s)


def check(case: Case, found: Verdict) -> None:
    """Say what is not as it must be.

    Raises:
        AssertionError: outcomes or verdict differ from what the case asks for.
    """
    ends = tuple(type(outcome) for outcome in found.outcomes)
    shown = f"{Schedule(case.faults)}\n{found.show()}"
    assert ends == case.ends, shown
    assert (found.word, found.ranks) == (case.word, case.ranks), shown
    assert found.batch == case.batch, shown
    assert case.because in found.because, shown
    if case.first is not None:
        assert found.first is not None, shown
        assert found.first.rank == case.first, shown


@contextmanager
def nothing_left(env: dict[str, str]) -> Iterator[None]:
    """Fail when something of the block is left: processes, temporary files, shared memory.

    Shared memory without a name, and ports, end with the processes that hold them.

    Args:
        env: gets a variable that the ranks must have, so that what they start is found.
    """
    env["MATRIX_MARK"] = secrets.token_hex(8)
    mark = f"MATRIX_MARK={env['MATRIX_MARK']}".encode()
    before = tempfile.tempdir
    directory = Path(tempfile.mkdtemp(prefix="t-"))  # short: unix sockets must fit into it
    shared = _shared_memory()
    tempfile.tempdir = str(directory)
    try:
        yield
        left = _Left(mark, directory, shared)
        deadline_s = time.monotonic() + LEFT_LIMIT_S
        while (found := left.now()) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert not found, f"left behind: {found}"
    finally:
        tempfile.tempdir = before
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class _Left:
    mark: bytes
    directory: Path
    shared: set[str]

    def now(self) -> list[str]:
        """Name what is there now and should not be."""
        processes = [f"process {pid}" for pid in guardian.marked(self.mark)]
        files = [str(path) for path in self.directory.iterdir()]
        return [*processes, *files, *sorted(_shared_memory() - self.shared)]


def _shared_memory() -> set[str]:
    return {str(path) for path in Path("/dev/shm").iterdir()}


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep cores busy beside the ranks."""
    # They end with this process, however it ends.
    program = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
    command = [sys.executable, "-I", "-S", "-c", program]
    others = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def campaign(
    backend: str, times: int, names: Sequence[str], say: Callable[[str], None]
) -> dict[str, list[float]]:
    """Run all cases `times` in a row; returns the seconds from fault to verdict of each."""
    stall_s = 1.5 if backend == "local" else 3.0
    took_s: dict[str, list[float]] = {case.name: [] for case in CASES if case.name in names}
    env: dict[str, str] = {}
    with (
        place(backend) as where,
        nothing_left(env),
        Gang(processes=2, backend=where, env=env) as gang,
    ):
        for turn in range(times):
            for case in CASES:
                if case.name not in took_s:
                    continue
                gang.run(cases.give)  # a fresh start is not part of the time measured
                found, seconds = run(gang, case, stall_s)
                check(case, found)
                if seconds is not None:
                    took_s[case.name].append(seconds)
            say(f"{time.strftime('%H:%M:%S')} turn {turn + 1} of {times} is right")
    return took_s


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="local", choices=NAMES)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--load", action="store_true", help="keep every core busy beside it")
    parser.add_argument("--case", nargs="*", default=[case.name for case in CASES])
    options = parser.parse_args()
    with load((os.cpu_count() or 1) if options.load else 0):
        took_s = campaign(options.backend, options.times, options.case, print)
    for name, each in took_s.items():
        if each:
            middle_s, most_s = statistics.median(each), max(each)
            print(f"{name:12} {len(each)} times, median {middle_s:.2f} s, at most {most_s:.2f} s")


if __name__ == "__main__":
    main()
