"""Reaches the watches of all nodes that have ranks: on this node directly, elsewhere by Ray."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from harness.backends.ray_main import NodeWatch, Place, WatchActor
from harness.custody import Custody
from harness.host import RankFiles

# How long a node may take to answer before it counts as silent.
ANSWER_LIMIT_S = 5.0


class Watches:
    """One watch a node, asked by rank.

    Args:
        places: where each rank runs.
        directory: where ranks of the parent's node write; others get one on their node.
        custody: whose mark the ranks hold.
        runtime_env: with which the watches of other nodes find the code of this package.
        start_limit_s: how long the watches of other nodes may take to start.

    Raises:
        ray.exceptions.RayError: one of them did not start.
    """

    def __init__(
        self,
        places: Sequence[Place],
        directory: Path,
        custody: Custody,
        runtime_env: Mapping[str, Any],
        start_limit_s: float,
    ) -> None:
        self._nodes = [place.node for place in places]
        self._here = ray.get_runtime_context().get_node_id()
        self._local = NodeWatch(directory, self._ranks_of(self._here))
        self._remote = {
            node: _new_watch(node, self._ranks_of(node), custody.mark[1], runtime_env)
            for node in sorted(set(self._nodes) - {self._here})
        }
        self.files: dict[int, RankFiles] = dict(self._local.files)
        asked = [watch.files.remote() for watch in self._remote.values()]
        for files in ray.get(asked, timeout=start_limit_s):
            self.files |= files
        for rank, place in enumerate(places):
            self.ask(rank, "add", rank, place.pid)

    @property
    def all_here(self) -> bool:
        """Whether all ranks are on the parent's node."""
        return not self._remote

    def begin_run(self) -> None:
        """Forget records and output of the run before."""
        self._local.begin_run()
        ray.get([w.begin_run.remote() for w in self._remote.values()], timeout=ANSWER_LIMIT_S)

    def all_ready(self) -> bool:
        """Whether all ranks live and none is stopped."""
        asked = [watch.all_ready.remote() for watch in self._remote.values()]
        with suppress(ray.exceptions.RayError):
            return self._local.all_ready() and all(ray.get(asked, timeout=ANSWER_LIMIT_S))
        return False

    def ask(self, rank: int, method: str, *args: Any) -> Any:
        """Call a method of the watch of this rank's node; `None` when there is no answer."""
        if self._nodes[rank] == self._here:
            return getattr(self._local, method)(*args)
        with suppress(ray.exceptions.RayError):
            watch = self._remote[self._nodes[rank]]
            return ray.get(getattr(watch, method).remote(*args), timeout=ANSWER_LIMIT_S)
        return None

    def ask_all(self, ranks: Collection[int], method: str, limit_s: float) -> dict[int, Any]:
        """Call a method of all watches at once, each with its own ranks; gives what they answer."""
        own = {node: [r for r in ranks if self._nodes[r] == node] for node in self._remote}
        asked = [getattr(self._remote[n], method).remote(rs) for n, rs in own.items() if rs]
        here = [rank for rank in ranks if self._nodes[rank] == self._here]
        answers: dict[int, Any] = dict(getattr(self._local, method)(here))
        if asked:
            for ref in ray.wait(asked, num_returns=len(asked), timeout=limit_s)[0]:
                with suppress(ray.exceptions.RayError):
                    answers |= ray.get(ref)
        return answers

    def close(self) -> None:
        """End the ranks of all nodes, and their watches."""
        self._local.kill()
        self._local.close()
        if not ray.is_initialized():
            return
        closing = [watch.close.remote() for watch in self._remote.values()]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=ANSWER_LIMIT_S)
        for watch in self._remote.values():
            ray.kill(watch)

    def _ranks_of(self, node: str) -> list[int]:
        return [rank for rank, each in enumerate(self._nodes) if each == node]


def _new_watch(node: str, ranks: list[int], mark: str, runtime_env: Mapping[str, Any]) -> Any:
    # Ray's workers kill what they have started when their raylet goes; a guardian outlives both.
    spared = {"RAY_kill_child_processes_on_worker_exit": "0"}
    environment = {**runtime_env.get("env_vars", {}), **spared}
    options = {
        "num_cpus": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
        "runtime_env": {**runtime_env, "env_vars": environment},
    }
    return ray.remote(WatchActor).options(**options).remote(ranks, mark)
