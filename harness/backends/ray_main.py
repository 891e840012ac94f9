"""What runs on a Ray cluster: the actor that is a rank, and the one that watches a host's ranks."""

from __future__ import annotations

import importlib
import os
import socket
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray

from harness import rank
from harness.custody import Custody
from harness.host import HostWatch, RankFiles
from harness.processes import ProcessState, children, look_at, name_of
from harness.rank_process import RankConfig, become, redirect_output
from harness.watchdog import Sample


@dataclass(frozen=True)
class Place:
    """Where a process runs.

    Attributes:
        node: id of the Ray node.
        address: of the node, as others reach it.
        pid: process id.
        slice_name: name of the TPU slice that the node belongs to; empty without one.
        worker_id: the node's number in that slice, as its TPU has it; `None` if nobody tells.
    """

    node: str
    address: str
    pid: int
    slice_name: str = ""
    worker_id: int | None = None


class RankActor:
    """One rank. Its methods run one after the other, in one thread."""

    def __init__(self) -> None:
        self._held: socket.socket | None = None

    def where(self) -> Place:
        """Say where this process runs."""
        context = ray.get_runtime_context()
        labels = context.get_node_labels()
        worker = labels.get("ray.io/tpu-worker-id") or os.environ.get("TPU_WORKER_ID", "")
        return Place(
            context.get_node_id(),
            ray.util.get_node_ip_address(),
            os.getpid(),
            labels.get("ray.io/tpu-slice-name") or os.environ.get("TPU_NAME", ""),
            int(worker) if worker.isdigit() else None,
        )

    def hold_port(self) -> str:
        """Give an address for process 0's service, which nobody else can get meanwhile.

        The port stays bound, without listening, with SO_REUSEPORT: the service can bind it too.
        """
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        self._held = socket.socket(family, socket.SOCK_STREAM)
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            self._held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._held.bind(("", 0))
        address = ray.util.get_node_ip_address()
        return f"{f'[{address}]' if ':' in address else address}:{self._held.getsockname()[1]}"

    def start(self, config: RankConfig, environment: Mapping[str, str]) -> None:
        """Become a rank; returns when all have run a collective.

        Args:
            config: what a rank must know.
            environment: variables that are set before JAX is imported.
        """
        redirect_output(config.files.output)
        os.environ.update(environment)
        # What holds a dataset needs it, and no case is to pay for its import.
        importlib.import_module("ray.data")
        become(config)

    def run(self, box: list[Any]) -> bytes:
        """Run one call; `box` holds the reference to function, arguments, keyword arguments."""
        return rank.execute(lambda: ray.get(box[0]))


class NodeWatch(HostWatch):
    """Watches ranks that are Ray actors, from a process on their node.

    A rank that waits for tasks of a dataset gains no CPU time itself, so what the node's
    other Ray workers do counts as its own.
    """

    def sample(self, ranks: Collection[int]) -> dict[int, Sample]:
        """Look at ranks; one that is gone makes no progress."""
        samples = super().sample(ranks)
        workers = self._workers()
        cpu_s = {pid: seen.cpu_s for pid, seen in workers.items()}
        demand_s = {t: each for seen in workers.values() for t, each in seen.demand_s.items()}
        return {
            number: replace(s, cpu_s={**s.cpu_s, **cpu_s}, demand_s={**s.demand_s, **demand_s})
            for number, s in samples.items()
        }

    def _workers(self) -> dict[int, ProcessState]:
        own = {process.pid for process in self._processes.values()}
        looks_at_own = [self._look_at(rank) for rank in self._processes]
        raylets = {seen.parent for seen in looks_at_own if seen is not None}
        workers = {pid for raylet in raylets for pid in children(raylet)} - own
        looks = {pid: look_at(pid) for pid in workers if _is_at_work(name_of(pid))}
        return {pid: seen for pid, seen in looks.items() if seen is not None}


def _is_at_work(name: str) -> bool:
    # Workers carry the name of what they run, and Python's while they start. The node's agents are
    # the raylet's children too, and never sleep for long.
    return name.startswith(("ray::", "python")) and not name.startswith(
        ("ray::IDLE", "ray::Dashboard", "ray::RuntimeEnv")
    )


class WatchActor:
    """Watches the ranks of a node that is not the parent's."""

    def __init__(self, ranks: list[int], mark: str) -> None:
        # A guardian on this node too: the parent's cannot reach it.
        self._custody = Custody(mark)
        directory = Path(tempfile.mkdtemp(dir=self._custody.directory))
        self._watch = NodeWatch(directory, ranks)

    def files(self) -> dict[int, RankFiles]:
        """Where the ranks are to write."""
        return self._watch.files

    def add(self, number: int, pid: int) -> None:
        """Say which process a rank is."""
        self._watch.add(number, pid)

    def begin_run(self) -> None:
        """Forget records and output of the run before."""
        self._watch.begin_run()

    def sample(self, ranks: list[int]) -> dict[int, Sample]:
        """Look at ranks."""
        return self._watch.sample(ranks)

    def stacks(self, ranks: list[int]) -> dict[int, str]:
        """Take the stacks of ranks."""
        return self._watch.stacks(ranks)

    def all_ready(self) -> bool:
        """Whether all ranks live, and none is stopped."""
        return self._watch.all_ready()

    def ended(self, ranks: list[int]) -> dict[int, bool]:
        """Whether these ranks' processes have ended."""
        return self._watch.ended(ranks)

    def ending(self, number: int) -> tuple[int | None, str | None]:
        """Exit status or signal of a rank that has ended."""
        return self._watch.ending(number)

    def record(self, number: int) -> bytes:
        """Read a rank's record."""
        return self._watch.record(number)

    def output(self, number: int) -> str:
        """Give the tail of a rank's output."""
        return self._watch.output(number)

    def close(self) -> None:
        """End the ranks of this node and remove their files."""
        self._watch.kill()
        self._watch.close()
        self._custody.close()
