"""Ranks as Ray actors, on a cluster of the gang's own or on a running one, on any of its nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray

from harness.backends import Call, Ended, GangStartError, Gone, Topology
from harness.backends.environment import import_path, overrides
from harness.backends.ray_cluster import enter
from harness.backends.ray_main import RankActor
from harness.backends.ray_watch import ANSWER_LIMIT_S, Watches
from harness.custody import Custody
from harness.host import NO_STACKS
from harness.rank import This
from harness.rank_process import RankConfig
from harness.watchdog import Sample

# How long a node may take to show its ranks, several times a second.
SAMPLE_LIMIT_S = 1.0
# How long actors may take to end when Ray asks them to, before they are killed.
FAREWELL_LIMIT_S = 0.5
# What faulthandler writes to stderr, for kernels that do not tell how a process has ended.
_FATAL = {"Fatal Python error: Aborted": "SIGABRT", "Fatal Python error: Segmentation": "SIGSEGV"}


class RayBackend:
    """Starts one Ray actor a rank.

    Arguments of `Gang.run` may hold datasets, iterators over their splits and object references.

    Args:
        address: of a running cluster. Without one, the cluster that this process is connected to
            is used, or one of this machine alone is started, which gangs of this process share.
        actor_options: options of each actor, as Ray's `options` takes them. Actors take no CPU by
            default, so that a dataset's tasks find some on a small machine.
        cluster_cpus: CPUs of a cluster that is started; two at least and one a core if not given.
        object_store_bytes: shared memory of a cluster that is started.
    """

    # A rank may wait for a worker process to start, which takes seconds and no CPU of its own.
    default_stall_s = 10.0

    def __init__(
        self,
        address: str | None = None,
        *,
        actor_options: Mapping[str, Any] | None = None,
        cluster_cpus: int | None = None,
        object_store_bytes: int = 200 * 1024 * 1024,
    ) -> None:
        self._address = address
        self._actor_options = dict(actor_options or {})
        self._cluster_cpus = cluster_cpus
        self._object_store_bytes = object_store_bytes
        self._leave: Callable[[], None] = lambda: None
        self._custody: Custody | None = None
        self._session: RaySession | None = None
        self._sessions = 0

    def start(self, topology: Topology) -> RaySession:
        """Start the actors; returns when all have run a collective."""
        if self._session is not None:
            self._session.kill()
        if self._custody is None:
            self._leave = enter(self._address, self._cluster_cpus, self._object_store_bytes)
            self._custody = Custody()
        self._sessions += 1
        directory = self._custody.directory / str(self._sessions)
        directory.mkdir()
        self._session = RaySession(topology, directory, self._custody, self._actor_options)
        try:
            self._session.start()
        except BaseException:
            self._session.kill()
            raise
        return self._session

    def close(self) -> None:
        """End the actors, and the cluster if no other gang uses what was started."""
        if self._session is not None:
            self._session.kill()
        if self._custody is not None:
            self._custody.close()
        self._leave()


class RaySession:
    """Actors that share one `jax.distributed` session."""

    def __init__(
        self,
        topology: Topology,
        directory: Path,
        custody: Custody,
        actor_options: Mapping[str, Any],
    ) -> None:
        self._topology = topology
        self._directory = directory
        self._custody = custody
        self._actor_options = actor_options
        self._killed = False
        self._actors: list[Any] = []
        self._watches: Watches | None = None
        self._running: dict[Any, int] = {}
        self._last: dict[int, Sample] = {}

    def start(self) -> None:
        """Start the actors and wait until all have run a collective.

        Raises:
            GangStartError: one failed or died before, or not all were ready in time.
        """
        topology = self._topology
        deadline_s = time.monotonic() + topology.start_timeout_s
        self._actors = [self._new_actor() for _ in range(topology.processes)]
        places = self._all("have a process", [a.where.remote() for a in self._actors], deadline_s)
        try:
            left_s = max(0.0, deadline_s - time.monotonic())
            watches = Watches(places, self._directory, self._custody, left_s)
        except ray.exceptions.RayError as error:
            raise GangStartError(f"a node's watch did not start: {error}") from error
        self._watches = watches
        coordinator = f"unix:{self._directory}/c"
        if not watches.all_here:
            held = [self._actors[0].hold_port.remote()]
            (coordinator,) = self._all("have a port", held, deadline_s)
        starts = [
            actor.start.remote(
                RankConfig(
                    This(rank, topology.processes, topology.devices_per_process),
                    watches.files[rank],
                    coordinator,
                    topology.jax_config,
                    topology.start_timeout_s,
                )
            )
            for rank, actor in enumerate(self._actors)
        ]
        self._all("are ready", starts, deadline_s)

    def _new_actor(self) -> Any:
        environment = {
            **overrides(self._topology, self._custody.mark),
            "PYTHONPATH": os.pathsep.join(import_path()),
            "PYTHONUNBUFFERED": "1",
        }
        options = {
            "num_cpus": 0,
            "max_restarts": 0,
            "max_task_retries": 0,
            **self._actor_options,
            "runtime_env": {"env_vars": environment},
        }
        return ray.remote(RankActor).options(**options).remote()

    def _all(self, what: str, refs: list[Any], deadline_s: float) -> list[Any]:
        """Wait for one answer a rank."""
        waiting = dict(zip(refs, range(len(refs)), strict=True))
        answers: dict[int, Any] = {}
        failures: dict[int, str] = {}
        while waiting and not failures:
            left_s = deadline_s - time.monotonic()
            done, _ = ray.wait(list(waiting), timeout=max(0.0, left_s))
            if not done:
                break
            # One that fails ends others: give them a moment to say so.
            ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0.01)
            for ref in ready:
                rank = waiting.pop(ref)
                try:
                    answers[rank] = ray.get(ref)
                except Exception as error:  # noqa: BLE001 - what start raises, or Ray itself
                    failures[rank] = str(error)
        if len(answers) == len(refs):
            return [answers[rank] for rank in range(len(refs))]
        missing = [rank for rank in range(len(refs)) if rank not in answers]
        text = (
            f"the gang could not start: ranks {', '.join(map(str, missing))} do not {what}"
            if failures
            else f"the gang did not start in start_timeout_s={self._topology.start_timeout_s:g}: "
            f"ranks {', '.join(map(str, missing))} do not {what}"
        )
        for rank in missing:
            if rank in failures:
                text += f"\n--- rank {rank}: {failures[rank]}"
            text += f"\n--- output of rank {rank}:\n{self.output(rank)}"
        raise GangStartError(text)

    def encode(self, call: Call) -> Sequence[Any]:
        """Put the call into the object store, once when all ranks get the same."""
        if all(args is call.args[0] for args in call.args):
            return [ray.put((call.fn, call.args[0], dict(call.kwargs)))] * len(call.args)
        return [ray.put((call.fn, args, dict(call.kwargs))) for args in call.args]

    def send(self, calls: Sequence[Any]) -> None:
        """Begin a run."""
        assert self._watches is not None
        self._last.clear()
        self._watches.begin_run()
        # In a list, so that what cannot be loaded fails inside the call, not before it.
        self._running = {
            actor.run.remote([ref]): rank
            for rank, (actor, ref) in enumerate(zip(self._actors, calls, strict=True))
        }

    def poll(self, timeout_s: float) -> Sequence[Ended | Gone]:
        """Wait until some rank has ended or is gone."""
        if not self._running:
            time.sleep(timeout_s)
            return []
        ready, waiting = ray.wait(list(self._running), timeout=timeout_s)
        if ready and waiting:
            also, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
            ready = [*ready, *also]
        return [self._end(self._running.pop(ref), ref) for ref in ready]

    def _end(self, rank: int, ref: Any) -> Ended | Gone:
        try:
            return Ended(rank, ray.get(ref))
        except Exception as error:  # noqa: BLE001 - whatever Ray says when an actor is lost
            assert self._watches is not None
            exit_status, signal = self._watches.ask(rank, "ending", rank) or (None, None)
            if exit_status is None and signal is None:
                output = self.output(rank)
                signal = next((name for text, name in _FATAL.items() if text in output), None)
            return Gone(rank, exit_status, signal, detail=_shorten(str(error)))

    def is_ready(self) -> bool:
        """Whether all processes live and none is stopped."""
        return self._watches is not None and self._watches.all_ready()

    def sample(self, ranks: Collection[int]) -> Mapping[int, Sample]:
        """Look at processes, each on its own node."""
        assert self._watches is not None
        self._last.update(self._watches.ask_all(ranks, "sample", SAMPLE_LIMIT_S))
        # A node that does not answer shows no progress.
        return {rank: self._last.get(rank, Sample()) for rank in ranks}

    def stacks(self, ranks: Collection[int]) -> Mapping[int, str]:
        """Take the stacks of processes, each on its own node."""
        assert self._watches is not None
        taken = self._watches.ask_all(ranks, "stacks", ANSWER_LIMIT_S)
        return {rank: taken.get(rank, NO_STACKS) for rank in ranks}

    def record(self, rank: int) -> bytes:
        """Read a rank's record."""
        assert self._watches is not None
        found = self._watches.ask(rank, "record", rank)
        return found if isinstance(found, bytes) else b""

    def output(self, rank: int) -> str:
        """Give the tail of a rank's stdout and stderr."""
        if self._watches is None:
            return ""
        found = self._watches.ask(rank, "output", rank)
        return found if isinstance(found, str) else "no output: the node does not answer"

    def kill(self) -> None:
        """End all actors, and whatever they have started on their nodes."""
        if self._killed:
            return
        self._killed = True
        if ray.is_initialized():
            for actor in self._actors:
                ray.kill(actor)
        self._custody.kill(after_s=FAREWELL_LIMIT_S)
        if self._watches is not None:
            self._watches.close()


def _shorten(text: str) -> str:
    """Leave out what Ray says of every death alike."""
    last = text.strip().splitlines()[-1] if text.strip() else ""
    return last.partition(" Some common causes")[0].partition(" There are some")[0]
