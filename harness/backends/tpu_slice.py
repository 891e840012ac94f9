"""Ranks on TPU slices that Ray reserves: one process a host, all of its chips."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from ray.util.tpu import get_tpu_coordinator_env_vars, slice_placement_group

from harness.backends import GangStartError, Topology
from harness.backends.environment import shipped
from harness.backends.ray_actors import ActorRanks, RayBackend, new_actor
from harness.backends.ray_cluster import enter
from harness.backends.ray_main import Place
from harness.backends.ray_session import RaySession
from harness.backends.slices import NoSliceError, SliceShape, describe_tpus
from harness.custody import Custody

# How long the chips of a reservation that is given up may take to be free again.
_RELEASE_LIMIT_S = 10.0


class TpuBackend(RayBackend):
    """Reserves TPU slices, and starts one rank a host on them.

    ```python
    backend = TpuBackend("4x4", "v6e", slices=1, code=[my_package])
    with Gang(processes=None, backend=backend) as gang: ...
    ```

    The rank of a process follows from its slice and from its host's number in that slice, as JAX
    numbers processes on TPU. The slices stay reserved until the gang is closed, or its parent is
    gone. On a machine of the cluster, this package and `code` are all that is needed beside the
    interpreter with jax and Ray: Ray ships them. Where this process is connected to a cluster
    already, its job must have them in its `runtime_env`: see `environment.shipped`.

    Args:
        topology: chips along each axis of one slice, such as "4x4".
        version: generation of the chips, such as "v6e".
        slices: number of slices; with more than one, ranks get the environment that JAX needs.
        address: of the cluster; where this process is not connected, by default the one that runs
            on this machine, or that RAY_ADDRESS names.
        code: packages, or files of modules, that the functions need which the ranks are to run.
        runtime_env: what the job needs beside that, as Ray takes it, such as `{"pip": [...]}`.
        platform: "tpu", or "cpu" for slices that are not there.
        reserve_timeout_s: how long to wait until the slices are free.

    Raises:
        ValueError: Ray knows no such slice.
    """

    def __init__(
        self,
        topology: str,
        version: str,
        slices: int = 1,
        *,
        address: str | None = None,
        code: Sequence[str | ModuleType] = (),
        runtime_env: Mapping[str, Any] | None = None,
        platform: str = "tpu",
        reserve_timeout_s: float = 60.0,
    ) -> None:
        super().__init__(address or "auto")
        self.shape = SliceShape(topology, version, slices)
        self._runtime_env = shipped(code, runtime_env)
        self._platform = platform
        self._reserve_timeout_s = reserve_timeout_s
        self._reservation: Any = None

    @property
    def processes(self) -> int:
        """Number of hosts of all slices: so many ranks there are."""
        return self.shape.hosts

    @property
    def devices_per_process(self) -> int:
        """Number of chips of one host."""
        return self.shape.chips_per_host

    def connect(self, topology: Topology) -> Callable[[], None]:
        """Connect to the cluster and reserve the slices; gives what ends both.

        Raises:
            NoSliceError: they were not free within `reserve_timeout_s`; says what the cluster has.
        """
        asked = (topology.processes, topology.devices_per_process)
        if asked != (self.processes, self.devices_per_process):
            raise GangStartError(
                f"{self.shape} has {self.processes} hosts of {self.devices_per_process} chips, "
                f"not {asked[0]} of {asked[1]}: leave processes and devices_per_process out"
            )
        try:
            leave = enter(self._address, runtime_env=self._runtime_env)
        except ConnectionError as error:
            raise NoSliceError(
                f"no cluster to look for {self.shape} on: give address=, or set RAY_ADDRESS "
                f"({error})"
            ) from error
        try:
            self._reservation = reserve(self.shape, self._reserve_timeout_s)
        except BaseException:
            leave()
            raise

        def end() -> None:
            if ray.is_initialized():
                release(self._reservation)
            leave()

        return end

    def session(self, topology: Topology, directory: Path, custody: Custody) -> RaySession:
        """Make a session on the reserved slices that is yet to be started."""
        platform = {"JAX_PLATFORMS": self._platform}
        topology = replace(
            topology,
            env={**platform, **topology.env},
            jax_config={"jax_platforms": self._platform, **topology.jax_config},
        )

        def launch(environment: Mapping[str, str]) -> ActorRanks:
            return SliceRanks(self._reservation, {**environment, "PYTHONUNBUFFERED": "1"})

        return RaySession(topology, directory, custody, {}, launch)


def reserve(shape: SliceShape, timeout_s: float) -> Any:
    """Reserve slices of the cluster that this process is connected to.

    Returns:
        Ray's `SlicePlacementGroup`, with all bundles placed.

    Raises:
        NoSliceError: the slices were not free within `timeout_s`; nothing stays reserved.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        found = slice_placement_group(
            topology=shape.topology,
            accelerator_version=shape.version,
            num_slices=shape.slices,
            head_reservation_timeout_s=timeout_s,
        )
    except (TimeoutError, RuntimeError) as error:
        raise _lacks(shape, timeout_s) from error
    # Not `ready()`: that is a task, which waits for a worker process as well.
    if not found.placement_group.wait(max(0.0, deadline_s - time.monotonic())):
        release(found)
        raise _lacks(shape, timeout_s)
    return found


def release(reservation: Any) -> None:
    """Give slices back; returns when Ray has taken notice, within a limit."""
    groups = [reservation.placement_group, *reservation.head_placement_groups]
    reservation.shutdown()
    deadline_s = time.monotonic() + _RELEASE_LIMIT_S
    while time.monotonic() < deadline_s:
        states = [ray.util.placement_group_table(group).get("state") for group in groups]
        if all(state in (None, "REMOVED") for state in states):
            return
        time.sleep(0.05)


def _lacks(shape: SliceShape, timeout_s: float) -> NoSliceError:
    from ray._private.state import available_resources_per_node

    has = describe_tpus(ray.nodes(), available_resources_per_node())
    return NoSliceError(
        f"no {shape} (type {shape.pod_type}, {shape.hosts} hosts of {shape.chips_per_host} chips) "
        f"was free within {timeout_s:g} s; {has}"
    )


class SliceRanks(ActorRanks):
    """One actor a bundle of a reservation, numbered by slice and by the host's number in it."""

    def __init__(self, reservation: Any, env_vars: Mapping[str, str]) -> None:
        self._slices = reservation.num_slices
        self._environments: list[dict[str, str]] = []
        resources = dict(reservation.bundle_resources)
        options = {
            "num_cpus": resources.pop("CPU", 0),
            "resources": resources,
            "runtime_env": {"env_vars": dict(env_vars)},
        }
        super().__init__(
            [
                new_actor(
                    options
                    | {
                        "scheduling_strategy": PlacementGroupSchedulingStrategy(
                            reservation.placement_group, placement_group_bundle_index=bundle
                        )
                    }
                )
                for bundle in range(reservation.num_bundles)
            ]
        )

    def number(self, places: Sequence[Place]) -> Sequence[int]:
        """Order the actors, which Ray has placed on the hosts of a slice in any order."""
        order = order_of(places, self._slices)
        self._actors = [self._actors[index] for index in order]
        if self._slices > 1:
            first = places[order[0]].address
            each = len(order) // self._slices
            self._environments = [
                get_tpu_coordinator_env_vars(first, self._slices, rank // each)
                for rank in range(len(order))
            ]
        return order

    def environment(self, rank: int) -> Mapping[str, str]:
        """Give what libtpu must know to join several slices."""
        return self._environments[rank] if self._environments else {}


def order_of(places: Sequence[Place], slices: int) -> list[int]:
    """Which process is which rank: slice by slice in the order of bundles, then by worker id.

    Args:
        places: where the process of each bundle runs.
        slices: number of slices; each has as many bundles.

    Raises:
        GangStartError: hosts do not say which they are, or not what makes whole slices.
    """
    each = len(places) // slices
    of_slice = [index // each for index in range(len(places))]
    for which in range(slices):
        members = [place for place, own in zip(places, of_slice, strict=True) if own == which]
        names = {place.slice_name for place in members}
        numbers = sorted(-1 if place.worker_id is None else place.worker_id for place in members)
        if each > 1 and (len(names) != 1 or numbers != list(range(each))):
            raise GangStartError(
                f"slice {which} has workers {numbers} of {sorted(names)}, not 0 to {each - 1} of "
                "one slice: the nodes lack their labels ray.io/tpu-slice-name, ray.io/tpu-worker-id"
            )
    return sorted(
        range(len(places)), key=lambda index: (of_slice[index], places[index].worker_id or 0)
    )
