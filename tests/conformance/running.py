"""Runs the suite as a user does: ``python -m pytest conformance ...`` in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: Longer than any run here takes with all cores busy.
LIMIT_S = 180.0
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")


@dataclass
class Ended:
    """A run that has ended."""

    status: int
    output: str
    report: dict[str, Any] | None

    @property
    def clauses(self) -> dict[str, dict[str, Any]]:
        """The clauses of ``report.json`` by id."""
        assert self.report is not None, self.output
        return {c["id"]: c for c in self.report["clauses"]}

    @property
    def again(self) -> list[str]:
        """The arguments of the first command that the output offers to run a case again."""
        command = re.search(r"^ *again: .* -m pytest (.*)$", self.output, re.MULTILINE)
        assert command is not None, self.output
        return shlex.split(command[1])


class Run:
    """A run of the suite that has been started.

    Its processes can be told by their environment, whatever they become.
    """

    def __init__(self, folder: Path, arguments: list[str], program: Sequence[str]) -> None:
        self._folder = folder
        self._mark = f"SUITE_RUN={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
        self._output = (folder / f"{value}.out").open("w+")
        self._report = folder / value
        # A session of its own, so that a signal to its group reaches what a terminal's would.
        self.process = subprocess.Popen(
            [*program, *arguments, "--report", str(self._report)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path, name: value, "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def interrupt(self) -> None:
        """Send what Ctrl-C sends, to what a terminal sends it to."""
        os.killpg(self.process.pid, signal.SIGINT)

    @property
    def report(self) -> Path:
        """The folder of its report."""
        return self._report

    def wait(self) -> Ended:
        """Wait for the end. Raises TimeoutExpired after ``LIMIT_S``."""
        status = self.process.wait(LIMIT_S)
        self._output.seek(0)
        written = self._report / "report.json"
        report = json.loads(written.read_text(encoding="utf-8")) if written.exists() else None
        return Ended(status, self._output.read(), report)

    def left(self) -> list[int]:
        """Ids of the processes of this run that are still there, once they have had 20 s to end."""
        deadline_s = time.monotonic() + 20
        while (pids := self._pids()) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        return pids

    def paths_after(self, option: str) -> set[Path]:
        """What the processes of this run were given for an option that is a path."""
        found = set()
        for pid in self._pids():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
                found |= {Path(words[words.index(option) + 1])} if option in words else set()
        return found

    def _pids(self) -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if self._mark.encode() in environment.split(b"\0"):
                found.append(int(entry.name))
        return found

    def close(self) -> None:
        """End whatever is left of the run."""
        for pid in self._pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        self._output.close()


@contextmanager
def started(folder: Path, *arguments: str, program: Sequence[str] = PYTEST) -> Iterator[Run]:
    """A run of the suite that ends with the block. Modules of ``folder`` can be subjects."""
    run = Run(folder, list(arguments), program)
    try:
        yield run
    finally:
        run.close()
