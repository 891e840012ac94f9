"""Programs that own a gang, and do not end it as they should. Run as `python -m`."""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import Any

import psutil

import tests
from harness import Gang, Returned
from tests.harness import cases


def pids_of(gang: Gang) -> list[int]:
    """Process ids of the ranks, and of a child that each has started in a session of its own."""
    outcomes = [*gang.run(cases.own_pid), *gang.run(cases.start_child)]
    return [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]


def pids_of_all(gang: Gang) -> list[int]:
    """Process ids of all that this process has started: ranks, guardians, a Ray cluster."""
    return pids_of(gang) + [child.pid for child in psutil.Process().children(recursive=True)]


_kept: list[Any] = []


def start(backend: str, processes: int) -> Gang:
    """Start a gang; `fake` is on a slice that is not there, `tpu=ADDRESS` on one of a cluster."""
    kind, _, address = backend.partition("=")
    if kind not in ("fake", "tpu"):
        return Gang(processes, backend=backend)
    from harness.backends.fake_slice import FakeSlices
    from harness.backends.slices import SliceShape
    from harness.backends.tpu_slice import TpuBackend

    shape = SliceShape("2x2x1" if kind == "fake" else "2x2x2", "v4")
    if not address:
        _kept.append(FakeSlices(shape))  # its guardian ends it with the last reference
        address = _kept[-1].address
    slices = TpuBackend(
        shape.topology, shape.version, address=address, code=[tests], platform="cpu"
    )
    return Gang(backend=slices)


def main(end: str, backend: str, processes: int) -> None:
    """Start a gang, print the ids of its processes, and go on as `end` says."""
    gang: Any = start(backend, processes)
    print(json.dumps(pids_of_all(gang)), flush=True)
    match end:
        case "idle":
            signal.pause()
        case "run":
            gang.run(cases.sleep_for_ever, deadline_s=600, stall_s=600)
        case "with":
            with gang:
                gang.run(cases.sleep_for_ever, deadline_s=600, stall_s=600)
        case "raise":
            with gang:
                raise ValueError("an error of the parent's own")
        case "exit":
            pass
        case "exit-in-thread":
            thread = threading.Thread(
                target=gang.run, args=(cases.sleep_for_ever,), kwargs={"stall_s": 600}, daemon=True
            )
            thread.start()
        case "forget":
            del gang
            print("forgotten", flush=True)
            signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
