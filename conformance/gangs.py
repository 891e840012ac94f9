"""The gangs that the cases of one pytest process run on: at most one of each kind at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from conformance.hosting import Hosting, code_of
from conformance.model import Case, Kind, Topology
from conformance.observe import observe, observe_in_train, warm_up
from conformance.sources import ray_shards
from conformance.subjects import Subject
from harness import Gang, Outcome
from harness.backends import Backend
from harness.backends.ray_cluster import enter as enter_cluster

#: Without an event or CPU time for so long, a case hangs. Ray's own work may keep ranks waiting.
STALL_S: dict[Kind, float] = {"memory": 4.0, "ray": 8.0}
#: Longer where a process waits for Ray to start workers for a dataset's tasks, on loaded cores.
TASKS_S = 12.0
DEADLINE_S = 120.0
START_S = 180.0


class Gangs:
    """Runs cases on warm gangs, on which each mesh that a case uses was used before.

    Args:
        subject: what ranks run.
        hosting: where they live. Slices are reserved at once, and held until `close`.
        reserve_timeout_s: how long to wait for slices.

    Raises:
        NoSliceError: the cluster lacks the slices; the text says what it has.
    """

    def __init__(
        self,
        subject: Subject,
        hosting: Hosting = Hosting(),  # noqa: B008 - it cannot change
        reserve_timeout_s: float = 60.0,
    ) -> None:
        self._subject = subject
        self._reserve_timeout_s = reserve_timeout_s
        self._hosting = hosting
        self._gangs: dict[Kind, tuple[Topology, Gang]] = {}
        self._owned = ExitStack()
        self._on_cluster = False
        try:
            if hosting.shape is not None:
                self._gang(Topology(hosting.shape.hosts, hosting.shape.chips_per_host), "ray")
        except BaseException:
            self.close()
            raise

    def run(self, case: Case, topology: Topology, kind: Kind) -> list[Outcome]:
        """Run the case on every process of the topology; one outcome a process."""
        if self._hosting.kind == "jaxtrainer" and kind == "ray":
            return self._run_in_train(case, topology)
        gang = self._gang(topology, kind)
        common = (self._subject, case, kind)
        own = None
        if kind == "ray":
            own = [(*common, *shards) for shards in zip(*_shards(case, topology), strict=True)]
        try:
            return gang.run(
                observe,
                *(() if own else common),
                per_rank=own,
                stall_s=self._stall_s(case, kind),
                deadline_s=DEADLINE_S,
                stops=case.use.stopped,
            )
        finally:
            if case.spoils:
                gang.renew()

    def _run_in_train(self, case: Case, topology: Topology) -> list[Outcome]:
        """Run it in a trainer of its own: shards are given to a trainer when it is made."""
        from harness.backends.jax_trainer import JaxTrainerBackend

        self._enter_cluster()
        columns = _shards(case, topology)
        shards = [
            {str(k): own[rank] for k, own in enumerate(columns)}
            for rank in range(topology.processes)
        ]
        backend = JaxTrainerBackend(shards=shards)
        with Gang(*_numbers(topology), backend, start_timeout_s=START_S) as gang:
            gang.prepare(warm_up)
            return gang.run(
                observe_in_train,
                self._subject,
                case,
                stall_s=self._stall_s(case, "ray"),
                deadline_s=DEADLINE_S,
            )

    def _stall_s(self, case: Case, kind: Kind) -> float:
        """For how long nobody may make progress before the case is said to hang."""
        tasks_s = TASKS_S if kind == "ray" and case.needs_tasks else 0.0
        base: Kind = kind if self._hosting.kind == "local" else "ray"
        return STALL_S[base] + case.patience_s + tasks_s

    def _gang(self, topology: Topology, kind: Kind) -> Gang:
        # But on this machine, where the processes live is the same for all sources.
        key: Kind = kind if self._hosting.kind == "local" else "ray"
        current = self._gangs.get(key)
        if current is not None and current[0] == topology:
            return current[1]
        self._end(key)
        backend = self._backend(key)
        gang = Gang(*_numbers(topology), backend, start_timeout_s=START_S)
        self._gangs[key] = (topology, gang)
        gang.prepare(warm_up)
        return gang

    def _backend(self, key: Kind) -> str | Backend:
        if self._hosting.shape is not None:
            return self._slices()
        if self._hosting.kind == "local" and key == "memory":
            return "local"
        self._enter_cluster()
        return "jaxtrainer" if self._hosting.kind == "jaxtrainer" else "ray"

    def _enter_cluster(self) -> None:
        """One cluster for all topologies: it takes longer to start than their actors."""
        if not self._on_cluster:
            leave: Callable[[], None] = enter_cluster()
            self._owned.callback(leave)
            self._on_cluster = True

    def _slices(self) -> Backend:
        from harness.backends.fake_slice import FakeSlices
        from harness.backends.tpu_slice import TpuBackend

        shape = self._hosting.shape
        assert shape is not None
        options: dict[str, Any] = {
            "code": code_of(self._subject),
            "reserve_timeout_s": self._reserve_timeout_s,
        }
        if self._hosting.kind == "fake":
            fake = self._owned.enter_context(FakeSlices(shape))
            # With a folder of its own, Ray does not let ranks import from where this process works.
            empty = self._owned.enter_context(tempfile.TemporaryDirectory())
            options |= {
                "address": fake.address,
                "platform": "cpu",
                "runtime_env": {"working_dir": empty},
            }
        return TpuBackend(shape.topology, shape.version, shape.slices, **options)

    def _end(self, kind: Kind) -> None:
        if kind in self._gangs:
            self._gangs.pop(kind)[1].close()

    def close(self) -> None:
        """End every process."""
        for kind in list(self._gangs):
            self._end(kind)
        self._owned.close()


def _numbers(topology: Topology) -> tuple[int, int]:
    return topology.processes, topology.devices


def _shards(case: Case, topology: Topology) -> list[list[Any]]:
    """For each iterator of the case, one Ray shard a process."""
    return [ray_shards(case, topology.processes) for _ in range(case.use.iterators)]
