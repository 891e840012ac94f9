"""The gangs that the cases of one pytest process run on: at most one of each kind at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from conformance.model import Case, Kind, Topology
from conformance.observe import observe, warm_up
from conformance.sources import ray_shards
from conformance.subjects import Subject
from harness import Gang, Outcome
from harness.backends.ray_cluster import enter as enter_cluster

#: Without an event or CPU time for so long, a case hangs. Ray's own work may keep ranks waiting.
STALL_S: dict[Kind, float] = {"memory": 4.0, "ray": 8.0}
#: Longer where a process waits for Ray to start workers for a dataset's tasks, on loaded cores.
TASKS_S = 12.0
DEADLINE_S = 120.0


def _stall_s(case: Case, kind: Kind) -> float:
    """For how long nobody may make progress before the case is said to hang."""
    tasks_s = TASKS_S if kind == "ray" and case.needs_tasks else 0.0
    return STALL_S[kind] + case.patience_s + tasks_s


class Gangs:
    """Runs cases on warm gangs, on which each mesh that a case uses was used before."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._gangs: dict[Kind, tuple[Topology, Gang]] = {}
        self._leave_cluster: Callable[[], None] | None = None

    def run(self, case: Case, topology: Topology, kind: Kind) -> list[Outcome]:
        """Run the case on every process of the topology; one outcome a process."""
        gang = self._gang(topology, kind)
        try:
            return self._run(gang, case, topology, kind)
        finally:
            if case.spoils:
                self._end(kind)

    def _run(self, gang: Gang, case: Case, topology: Topology, kind: Kind) -> list[Outcome]:
        sources: Sequence[tuple[Any, ...]] = [()] * topology.processes
        if kind == "ray":
            shards = (ray_shards(case, topology.processes) for _ in range(case.use.iterators))
            sources = list(zip(*shards, strict=True))
        return gang.run(
            observe,
            per_rank=[(self._subject, case, kind, *source) for source in sources],
            stall_s=_stall_s(case, kind),
            deadline_s=DEADLINE_S,
        )

    def _gang(self, topology: Topology, kind: Kind) -> Gang:
        current = self._gangs.get(kind)
        if current is not None and current[0] == topology:
            return current[1]
        self._end(kind)
        if kind == "ray" and self._leave_cluster is None:
            # One cluster for all topologies: it takes longer to start than their actors.
            self._leave_cluster = enter_cluster()
        gang = Gang(topology.processes, topology.devices, "ray" if kind == "ray" else "local")
        self._gangs[kind] = (topology, gang)
        gang.prepare(warm_up)
        return gang

    def _end(self, kind: Kind) -> None:
        if kind in self._gangs:
            self._gangs.pop(kind)[1].close()

    def close(self) -> None:
        """End every process."""
        for kind in list(self._gangs):
            self._end(kind)
        if self._leave_cluster is not None:
            self._leave_cluster()
            self._leave_cluster = None
