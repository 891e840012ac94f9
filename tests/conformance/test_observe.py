"""What the suite makes of the processes that cases run on."""

from __future__ import annotations

import os
import threading

import pytest

from conformance.observe import warm_up
from harness import Gang, Returned


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="only Linux has this policy")
def test_no_thread_of_a_warm_process_preempts_another_when_it_is_woken() -> None:
    """Neither those of JAX and gloo, nor those that a case starts."""
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        pytest.skip("this process itself, and so what it starts, has another policy")
    with Gang(1, 1) as gang:
        gang.prepare(warm_up)
        (outcome,) = gang.run(_policies)

    assert isinstance(outcome, Returned), outcome.describe()
    assert outcome.value == {os.SCHED_BATCH}


def _policies() -> set[int]:
    found: set[int] = set()

    def look() -> None:
        found.update(map(os.sched_getscheduler, map(int, os.listdir("/proc/self/task"))))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found
