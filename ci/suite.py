"""Runs the suite in a process of its own, which cannot outlive the gate, and follows its journal.

    python -m ci.suite PARENT_PID PYTEST_ARGUMENT...

The process asks the kernel to be killed with its parent; what it has started is then ended by the
harness, whose guardians outlive it by a moment.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from conformance.deciding import Result

ROOT = Path(__file__).parents[1]
_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.2
#: How long an interrupted run may take to end its processes before it is killed.
_ENDING_S = 60.0
#: Statuses of pytest that are no verdict: interrupted, internal error, usage, no tests.
_BROKEN = {
    2: "the suite was interrupted",
    3: "the suite failed within itself",
    4: "the suite could not use its options",
    5: "the suite has no case for this choice",
}


@dataclass
class Followed:
    """What the journal of a run says so far."""

    results: list[Result] = field(default_factory=list)
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)
    partial: str = ""

    def take(self, line: str) -> None:
        """Read one line."""
        said = json.loads(line)
        if "starts" in said:
            self.running[said["starts"]] = time.monotonic()
        elif "ends" in said:
            self.running.pop(said["ends"], None)
            self.results += [Result(**r) for r in said["results"]]
            self.accounts[said["ends"]] = said["account"]
        elif "lost" in said:
            self.running.pop(said["lost"], None)
            self.lost[said["lost"]] = said["words"]


class Interrupted(Exception):  # noqa: N818  it is no error but a wish
    """The gate was asked to stop; ``signal`` is the name of what asked."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number).name
        super().__init__(self.signal)


def follow(
    arguments: Sequence[str],
    journal: Path,
    output: TextIO,
    tell: Callable[[Followed], None],
) -> Followed:
    """Run pytest with ``arguments``, and ``tell`` what is known now and then.

    Whatever stops the run, what the journal holds until then is returned, and ``partial`` says why
    it is not all. A SIGINT or SIGTERM is passed on as SIGINT, on which the suite tidies up.
    """
    seen = Followed()
    journal.touch()
    command = [sys.executable, "-m", "ci.suite", str(os.getpid()), *arguments]
    with _interruptible(), journal.open(encoding="utf-8") as lines:
        # A session of its own: a terminal's Ctrl-C reaches the gate alone, which passes it on.
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            # A subject of the user's own is found from where the gate was started.
            env=os.environ | {"PYTHONPATH": _path()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            rest = ""
            while child.poll() is None:
                rest = read_lines(lines, rest, seen)
                tell(seen)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_LOOK_S)
        except Interrupted as stop:
            seen.partial = f"the gate was stopped by {stop.signal}"
        finally:
            _end(child)
        read_lines(lines, rest, seen)
    seen.partial = seen.partial or _words(child.returncode)
    return seen


def _path() -> str:
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(Path.cwd())]))


def read_lines(lines: TextIO, rest: str, seen: Followed) -> str:
    """Take all whole lines; give back the start of one that is being written."""
    *whole, rest = (rest + lines.read()).split("\n")
    for line in whole:
        seen.take(line)
    return rest


def _words(status: int) -> str:
    if status < 0:
        return f"the suite was ended by {signal.Signals(-status).name}"
    return _BROKEN.get(status, "")


def _end(child: subprocess.Popen[bytes]) -> None:
    """Interrupt the run, so that it tidies up; kill it if it does not."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextlib.contextmanager
def _interruptible() -> Any:
    """Turn the first SIGINT or SIGTERM into Interrupted; pass over others, for the tidying up."""

    def stop(number: int, _: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _main() -> int:
    import pytest

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # the parent was gone before the kernel was asked
        return 2
    return int(pytest.main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(_main())
