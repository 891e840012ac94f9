"""Ranks as the workers of Ray Train's JaxTrainer: the function runs inside its train loop."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import ray
import ray.train
from ray.train.v2.jax import JaxConfig, JaxTrainer

from harness.backends import Topology
from harness.backends.environment import import_path, shipped
from harness.backends.ray_actors import RayBackend
from harness.backends.ray_cluster import enter
from harness.backends.ray_main import Place
from harness.backends.ray_session import SAMPLE_LIMIT_S, RaySession
from harness.backends.ray_train_main import (
    ABORT_LIMIT_S,
    Announce,
    GivenShards,
    Mailbox,
    serve,
)
from harness.backends.ray_watch import ANSWER_LIMIT_S
from harness.custody import Custody
from harness.watchdog import Sample

# How long the trainer may take to end: its controller may still have to start before it is ended.
FAREWELL_LIMIT_S = 30.0
_RANK_FRAME = re.compile(r'harness/rank\.py", line \d+ in execute$', re.MULTILINE)
# A worker must ask for something; datasets' tasks need the CPUs.
_LITTLE_CPU = 0.01


class JaxTrainerBackend(RayBackend):
    """Starts a `JaxTrainer`, and one rank in the train loop of each of its workers.

    What Ray Train gives to a loop is there: `ray.train.get_context()`, and
    `ray.train.get_dataset_shard(name)` for `datasets` or `shards`. The loop runs in a thread that
    is not the main one. Ray Train ends all workers when one has died, so that is their outcome.

    Args:
        address: of a running cluster; without one, as for `RayBackend`.
        datasets: what Ray Train splits among workers, by name; in equal parts without
            `data_config`.
        data_config: how it splits them.
        shards: instead of both: for each rank, its own `Dataset` or `DataIterator` of each name.
        scaling: more arguments for `ray.train.ScalingConfig`, such as `use_tpu` and `topology`.
        code: packages that the ranks need, for a cluster whose machines do not have them.
        cluster_cpus: CPUs of a cluster that is started.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        datasets: Mapping[str, Any] | None = None,
        data_config: ray.train.DataConfig | None = None,
        shards: Sequence[Mapping[str, Any]] | None = None,
        scaling: Mapping[str, Any] | None = None,
        code: Sequence[str | ModuleType] = (),
        cluster_cpus: int | None = None,
    ) -> None:
        if shards is not None and (datasets is not None or data_config is not None):
            raise ValueError("shards cannot go with datasets or data_config: give one of the two")
        super().__init__(address, cluster_cpus=cluster_cpus)
        self._datasets = dict(datasets or {})
        self._data_config = data_config
        if shards is not None:
            # Ray Train asks how to split each dataset that it has: one is needed for the name.
            self._datasets = dict(shards[0]) if shards else {}
            self._data_config = GivenShards(shards)
        self._scaling = dict(scaling or {})
        self._code = code

    def connect(self, topology: Topology) -> Callable[[], None]:  # noqa: ARG002 - any will do
        """Connect to the cluster, or start one; gives what ends that."""
        runtime_env = shipped(self._code) if self._address is not None else None
        return enter(self._address, self._cluster_cpus, self._object_store_bytes, runtime_env)

    def session(self, topology: Topology, directory: Path, custody: Custody) -> RaySession:
        """Make a session that is yet to be started."""
        own = os.pathsep.join(import_path())
        code = {} if self._address is not None else {"env_vars": {"PYTHONPATH": own}}

        def launch(environment: Mapping[str, str]) -> TrainerRanks:
            env_vars = {
                **environment,
                **code.get("env_vars", {}),
                "PYTHONUNBUFFERED": "1",
                # Ray Train joins the session before any code of ours runs.
                "JAX_ENABLE_RECOVERABILITY": "1",
                # What a rank prints is its output, not Ray Train's log.
                "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
            }
            actor = ray.remote(Mailbox).options(num_cpus=0, runtime_env=code)
            mailbox = actor.remote(topology.processes)
            ranks = TrainerRanks(mailbox, topology.processes)
            ranks.fit(
                jax_config=JaxConfig(use_tpu=True),
                scaling_config=ray.train.ScalingConfig(
                    **{
                        "num_workers": topology.processes,
                        "resources_per_worker": {"CPU": _LITTLE_CPU},
                        **self._scaling,
                    }
                ),
                run_config=ray.train.RunConfig(
                    name=secrets.token_hex(8),
                    storage_path=str(custody.directory),
                    worker_runtime_env={"env_vars": env_vars},
                    callbacks=[Announce(mailbox)],
                ),
                datasets=self._datasets,
                dataset_config=self._data_config,
            )
            return ranks

        return TrainerSession(topology, directory, custody, code, launch)


class TrainerRanks:
    """Ranks in the workers of a trainer, numbered as Ray Train does it."""

    joined = True

    def __init__(self, mailbox: Any, processes: int) -> None:
        self._mailbox = mailbox
        self._processes = processes
        self._thread: threading.Thread | None = None

    def fit(self, **arguments: Any) -> None:
        """Run a trainer with these arguments in the background."""
        trainer = JaxTrainer(serve, train_loop_config={"mailbox": self._mailbox}, **arguments)

        def run() -> None:
            why = "the trainer has ended"
            try:
                trainer.fit()
            except Exception as error:  # noqa: BLE001 - whatever it is, its ranks have ended
                why = f"{why}: {type(error).__name__}: {error}"
            for rank in range(self._processes):
                self._tell_lost(rank, why)

        self._thread = threading.Thread(target=run, name="gang-trainer", daemon=True)
        self._thread.start()

    def ask(self, index: int, method: str, *args: Any) -> Any:
        """Have a worker call a method."""
        return self._mailbox.ask.remote(index, method, args)

    def number(self, places: Sequence[Place]) -> Sequence[int]:
        """Keep Ray Train's numbers: it has given them to JAX."""
        return range(len(places))

    def environment(self, rank: int) -> Mapping[str, str]:  # noqa: ARG002 - Ray Train sets it
        """Give no variables."""
        return {}

    def lose(self, rank: int) -> None:
        """Let what this rank was asked fail."""
        self._tell_lost(rank, "its process has ended")

    def _tell_lost(self, rank: int, why: str) -> None:
        with contextlib.suppress(ray.exceptions.RayError):  # the gang may have ended before
            self._mailbox.lose.remote(rank, why)

    def kill(self) -> None:
        """End the trainer, with its workers and what they hold."""
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._mailbox.close.remote(), timeout=ABORT_LIMIT_S + ANSWER_LIMIT_S)
        if self._thread is not None:
            self._thread.join(FAREWELL_LIMIT_S)
        ray.kill(self._mailbox)


class TrainerSession(RaySession):
    """Workers of a trainer. Nobody but their node can tell that they have ended."""

    def sample(self, ranks: Collection[int]) -> Mapping[int, Sample]:
        """Look at workers, and take notice of those that have ended."""
        assert self._watches is not None
        assert self._ranks is not None
        for rank, ended in self._watches.ask_all(ranks, "ended", SAMPLE_LIMIT_S).items():
            if ended:
                self._ranks.lose(rank)
        return super().sample(ranks)

    def stacks(self, ranks: Collection[int]) -> Mapping[int, str]:
        """Take the stacks; the thread of the train loop comes last, where others have the main."""
        return {rank: loop_last(text) for rank, text in super().stacks(ranks).items()}


def loop_last(stacks: str) -> str:
    """Put the thread that runs the function to the end of what `faulthandler` wrote."""
    blocks = re.split(r"\n(?=(?:Current t|T)hread )", stacks)
    own = [block for block in blocks if _RANK_FRAME.search(block)]
    return "\n".join([block for block in blocks if block not in own] + own)
