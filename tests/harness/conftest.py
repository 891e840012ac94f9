"""Fixtures of the harness's tests."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import Gang, Outcome
from tests.harness import cases

# What a verdict may take beyond stall_s, on a machine whose cores are busy with other things.
SLACK_S = 5.0
# For Ray where other work takes the cores: cluster and ranks took 98 s at a load of 17.
START_TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def gang() -> Iterator[Gang]:
    """Two processes of two devices, kept warm between the tests of a module."""
    with Gang(processes=2, devices_per_process=2) as gang:
        yield gang


@pytest.fixture
def temp_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a short directory that `tempfile` uses, here and in subprocesses."""
    path = Path(tempfile.mkdtemp(prefix="t-"))
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    monkeypatch.setenv("TMPDIR", str(path))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    return _state(pid) not in ("", "Z", "X")


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped a process."""
    return _state(pid) == "T"


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Wait until the condition holds; False when it does not within the limit."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


def open_fds() -> set[str]:
    """Names of this process's open file descriptors."""
    return set(os.listdir("/proc/self/fd"))


def run_in_time(gang: Gang, fn: Callable[..., Any], *args: Any, stall_s: float) -> list[Outcome]:
    """Run on a gang of two with a short stall_s, and see that the verdict is in time."""
    gang.run(cases.give)  # a fresh start is not part of the time measured
    start_s = time.monotonic()
    outcomes = gang.run(fn, *args, stall_s=stall_s, deadline_s=60)

    assert time.monotonic() - start_s < stall_s + SLACK_S
    assert [outcome.rank for outcome in outcomes] == [0, 1]
    assert all(outcome.describe() for outcome in outcomes)
    return outcomes
