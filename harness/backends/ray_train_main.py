"""What runs on a Ray cluster for a JaxTrainer: the loop of each worker, and how calls reach it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
import ray.data
import ray.train
from ray._private.state import state
from ray.core.generated.gcs_pb2 import PlacementGroupTableData
from ray.train.v2._internal.execution.callback import ControllerCallback
from ray.util.placement_group import PlacementGroup

from harness.backends.ray_main import RankActor

# How long a trainer's controller may take to end its workers and free what it has reserved.
ABORT_LIMIT_S = 10.0
# How long one that does nothing else takes to hear of it.
PATIENCE_S = 1.0


class LostError(RuntimeError):
    """The worker that was asked has ended."""


class Mailbox:
    """An actor through which the parent calls workers that are not its own."""

    def __init__(self, workers: int) -> None:
        self._calls: list[asyncio.Queue[tuple[str, tuple[Any, ...]]]] = [
            asyncio.Queue() for _ in range(workers)
        ]
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._lost: dict[int, str] = {}
        self._controller: Any = None
        self._closed = False

    async def ask(self, index: int, method: str, args: tuple[Any, ...]) -> Any:
        """Have a worker call a method of its `RankActor`; gives or raises what that does."""
        if index in self._lost:
            raise LostError(self._lost[index])
        future = self._asked[index] = asyncio.get_running_loop().create_future()
        await self._calls[index].put((method, args))
        return await future

    async def next(self, index: int) -> tuple[str, tuple[Any, ...]]:
        """Wait until worker `index` is asked something."""
        return await self._calls[index].get()

    async def answer(self, index: int, value: Any, error: BaseException | None = None) -> None:
        """Give what the worker's call has returned or raised."""
        future = self._asked.pop(index)
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    async def lose(self, index: int, why: str) -> None:
        """Take notice of a worker's end."""
        self._lost.setdefault(index, why)
        if index in self._asked:
            self._asked.pop(index).set_exception(LostError(why))

    async def set_controller(self, controller: Any) -> None:
        """Keep the handle of the trainer's controller; end it if nobody waits for it any more."""
        self._controller = controller
        if self._closed:
            await _end(controller)

    async def is_closed(self) -> bool:
        """Whether nobody waits for the trainer any more."""
        return self._closed

    async def close(self) -> None:
        """End the trainer's controller, now or as soon as it has started.

        Left to itself, it would look after workers that have ended, or wait for CPUs.
        """
        self._closed = True
        if self._controller is not None:
            await _end(self._controller)


async def _end(controller: Any) -> None:
    """Ask a trainer's controller to give up what it holds, then kill it.

    One that is just killed leaves its placement group reserved, and an actor that would free it
    where the cluster has a dashboard. One that waits for a placement group hears nothing until that
    has come or is removed; then it would wait for another, which `Announce` prevents.
    """
    asked = asyncio.ensure_future(_answered(controller.abort.remote()))
    began_s = time.monotonic()
    while not asked.done() and time.monotonic() - began_s < ABORT_LIMIT_S:
        await asyncio.wait({asked}, timeout=PATIENCE_S)
        if not asked.done():
            _remove_groups(controller)
    ray.kill(controller)
    _remove_groups(controller)


async def _answered(asked: Any) -> None:
    with contextlib.suppress(ray.exceptions.RayError):
        await asked


def _remove_groups(creator: Any) -> None:
    """Remove the placement groups that an actor has made and that are still there."""
    # What is public does not say who has made one.
    for told in state._connect_and_get_accessor().get_placement_group_table():
        group = PlacementGroupTableData.FromString(told)
        made = group.creator_actor_id == creator._ray_actor_id.binary()
        if made and group.state != PlacementGroupTableData.REMOVED:
            group_id = ray.PlacementGroupID(group.placement_group_id)
            ray.util.remove_placement_group(PlacementGroup(group_id))


class GivenUpError(RuntimeError):
    """Nobody waits any more for the workers that a trainer is to start."""


class Announce(ControllerCallback):  # type: ignore[misc]
    """Tells a mailbox of a trainer's controller, which Ray Train keeps to itself; ends with it."""

    def __init__(self, mailbox: Any) -> None:
        self._mailbox = mailbox

    def after_controller_start(self, train_run_context: Any) -> None:  # noqa: ARG002 - Ray's
        """Say which actor this is."""
        self._mailbox.set_controller.remote(ray.get_runtime_context().current_actor)

    def on_controller_start_worker_group(
        self,
        *,
        scaling_config: Any,  # noqa: ARG002 - Ray's, as the next
        num_workers: int,  # noqa: ARG002
    ) -> None:
        """End the trainer if nobody waits for its workers any more.

        Raises:
            GivenUpError: so it is; Ray Train tries again after few errors, and not after this one.
        """
        if ray.get(self._mailbox.is_closed.remote()):
            raise GivenUpError("the gang was closed before its trainer had started")


def serve(config: Mapping[str, Any]) -> None:
    """Do as the parent asks, one call after the other: the train loop of each worker."""
    mailbox = config["mailbox"]
    index = ray.train.get_context().get_world_rank()
    actor = RankActor()
    while True:
        method, args = ray.get(mailbox.next.remote(index))
        try:
            value = getattr(actor, method)(*args)
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent raises it
            told = RuntimeError(f"{type(error).__name__}: {error}")
            ray.get(mailbox.answer.remote(index, None, told))
        else:
            ray.get(mailbox.answer.remote(index, value))


class GivenShards(ray.train.DataConfig):  # type: ignore[misc]
    """Gives each worker the shards that were made for it, however uneven they are.

    Args:
        shards: for each worker, its shard of each name: a Ray `Dataset` or `DataIterator`.
    """

    def __init__(self, shards: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self._given = [dict(own) for own in shards]

    def __deepcopy__(self, memo: Any) -> GivenShards:
        """Stay as it is: Ray copies its configuration, and shards hold handles of actors."""
        return self

    def configure(
        self,
        datasets: Mapping[str, Any],  # noqa: ARG002 - Ray's signature, as the rest
        world_size: int,
        worker_handles: Any = None,  # noqa: ARG002
        worker_node_ids: Any = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> list[dict[str, Any]]:
        """Give worker k the shards that were made for it."""
        if len(self._given) != world_size:
            raise ValueError(f"shards for {len(self._given)} workers, not for {world_size}")
        return [{name: _iterator(own) for name, own in each.items()} for each in self._given]


def _iterator(shard: Any) -> Any:
    return shard.iterator() if isinstance(shard, ray.data.Dataset) else shard
