"""Ranks as Ray actors, on a cluster of the gang's own or on a running one, on any of its nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray

from harness.backends import Topology
from harness.backends.environment import import_path
from harness.backends.ray_cluster import enter
from harness.backends.ray_main import Place, RankActor
from harness.backends.ray_session import RaySession
from harness.custody import Custody


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

    @property
    def processes(self) -> int | None:
        """Any number will do."""
        return None

    @property
    def devices_per_process(self) -> int | None:
        """Any number will do."""
        return None

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
        """Start the ranks; returns when all have run a collective."""
        if self._session is not None:
            self._session.kill()
        if self._custody is None:
            self._leave = self.connect(topology)
            self._custody = Custody()
        self._sessions += 1
        directory = self._custody.directory / str(self._sessions)
        directory.mkdir()
        self._session = self.session(topology, directory, self._custody)
        try:
            self._session.start()
        except BaseException:
            self._session.kill()
            raise
        return self._session

    def close(self) -> None:
        """End the ranks, and the cluster if no other gang uses what was started."""
        if self._session is not None:
            self._session.kill()
        if self._custody is not None:
            self._custody.close()
        self._leave()

    def connect(self, topology: Topology) -> Callable[[], None]:  # noqa: ARG002 - others need it
        """Connect to the cluster; gives what ends that. For backends that build on this one."""
        return enter(self._address, self._cluster_cpus, self._object_store_bytes)

    def session(self, topology: Topology, directory: Path, custody: Custody) -> RaySession:
        """Make a session that is yet to be started. For backends that build on this one."""
        code = {"PYTHONPATH": os.pathsep.join(import_path())}

        def launch(environment: Mapping[str, str]) -> ActorRanks:
            env_vars = {**environment, **code, "PYTHONUNBUFFERED": "1"}
            options = {**self._actor_options, "runtime_env": {"env_vars": env_vars}}
            return ActorRanks([new_actor(options) for _ in range(topology.processes)])

        return RaySession(topology, directory, custody, {"env_vars": code}, launch)


def new_actor(options: Mapping[str, Any]) -> Any:
    """Start the actor of a rank; it is never restarted, and asks for no CPU unless told to."""
    defaults = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0}
    return ray.remote(RankActor).options(**{**defaults, **options}).remote()


class ActorRanks:
    """Ranks that are actors of their own, numbered as they are given."""

    joined = False

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = list(actors)

    def ask(self, index: int, method: str, *args: Any) -> Any:
        """Call a method of an actor."""
        return getattr(self._actors[index], method).remote(*args)

    def number(self, places: Sequence[Place]) -> Sequence[int]:
        """Number the actors as they were given."""
        return range(len(places))

    def environment(self, rank: int) -> Mapping[str, str]:  # noqa: ARG002 - none needs any
        """Give no variables."""
        return {}

    def lose(self, rank: int) -> None:
        """Leave it to Ray, which tells of the ends of actors."""

    def kill(self) -> None:
        """End the actors."""
        for actor in self._actors:
            ray.kill(actor)
