"""Tests of jaxiter.placement between real processes."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from harness import Gang, Returned, rank
from jaxiter.errors import OptionError
from jaxiter.options import make_options
from jaxiter.placement import Placement

PROCESSES = 2
DEVICES_PER_PROCESS = 4


@pytest.fixture(scope="module")
def gang() -> Iterator[Gang]:
    """Two processes of four devices each."""
    with Gang(processes=PROCESSES, devices_per_process=DEVICES_PER_PROCESS) as gang:
        yield gang


def mesh_devices(layout: str) -> np.ndarray:
    """Return the eight devices, by process or alternating between the two."""
    devices = np.array(jax.devices()).reshape(PROCESSES, DEVICES_PER_PROCESS)
    return devices if layout == "by process" else devices.T.reshape(PROCESSES, DEVICES_PER_PROCESS)


def sharding_of(layout: str, *spec: Any) -> NamedSharding:
    """Return a sharding over a (2, 4) mesh with the axes 'data' and 'model'."""
    partitions: Any = PartitionSpec
    return NamedSharding(Mesh(mesh_devices(layout), ("data", "model")), partitions(*spec))


# name: layout, spec, batch size, groups of processes with the same rows
CASES: dict[str, tuple[str, tuple[Any, ...], int, tuple[tuple[int, ...], ...]]] = {
    "rows over data": ("by process", ("data",), 1, ((0,), (1,))),
    "rows over both axes": ("by process", (("data", "model"),), 8, ((0,), (1,))),
    "rows over both, alternating": ("alternating", (("data", "model"),), 8, ((0,), (1,))),
    "rows over model": ("by process", ("model",), 4, ((0, 1),)),
    "rows over data, alternating": ("alternating", ("data",), 2, ((0, 1),)),
    "rows over model, alternating": ("alternating", ("model",), 4, ((0,), (1,))),
    "replicated": ("by process", (), 3, ((0, 1),)),
    "columns over model": ("by process", ("data", "model"), 3, ((0,), (1,))),
    "columns over data": ("by process", ("model", "data"), 4, ((0, 1),)),
    "columns alone": ("by process", (None, "model"), 3, ((0, 1),)),
}


def own_rows(split: int, batch_size: int) -> np.ndarray:
    """Return the rows of a split, (batch_size, 8), every value its own."""
    return (np.arange(batch_size * 8) + 1000 * (split + 1)).reshape(batch_size, 8).astype(np.int32)


def place(name: str) -> Any:
    """Place one batch; return the groups, and the index and values on each device."""
    if name == "default":
        placement = Placement(make_options(batch_size=8))
    else:
        layout, spec, batch_size, _ = CASES[name]
        placement = Placement(
            make_options(batch_size=batch_size, sharding=sharding_of(layout, *spec))
        )
    split, count = placement.row_shard
    (array,) = placement.put([own_rows(split, placement._options.batch_size)])
    shards = [
        (tuple(part.indices(size)[:2] for part, size in zip(shard.index, array.shape, strict=True)))
        for shard in array.addressable_shards
    ]
    return {
        "groups": placement.row_groups,
        "split": (split, count),
        "shape": array.shape,
        "shards": [
            (index, np.asarray(shard.data))
            for index, shard in zip(shards, array.addressable_shards, strict=True)
        ],
        "description": placement.describe(),
    }


def returned(outcomes: list[Any]) -> list[Any]:
    """Return what all ranks returned."""
    for outcome in outcomes:
        assert isinstance(outcome, Returned), outcome.describe()
    return [outcome.value for outcome in outcomes]


@pytest.mark.parametrize("name", ["default", *CASES])
def test_rows_reach_the_devices_that_the_sharding_gives_them(gang: Gang, name: str) -> None:
    """Each process's shards, in order of index, are its own rows in order; equal on replicas."""
    groups, batch_size = (
        (((0,), (1,)), 8) if name == "default" else (CASES[name][3], CASES[name][2])
    )

    seen = returned(gang.run(place, name))

    assert [one["groups"] for one in seen] == [groups] * PROCESSES
    assert seen[0]["description"] == seen[1]["description"]
    whole = np.zeros((batch_size * len(groups), 8), np.int32)
    for process, one in enumerate(seen):
        split = next(i for i, group in enumerate(groups) if process in group)
        assert one["split"] == (split, len(groups))
        assert one["shape"] == whole.shape
        rows = own_rows(split, batch_size)
        starts = sorted({index[0][0] for index, _ in one["shards"]})
        height = batch_size // len(starts)
        for ((start, stop), (left, right)), values in one["shards"]:
            at = starts.index(start) * height
            assert stop - start == height
            np.testing.assert_array_equal(values, rows[at : at + height, left:right])
            whole[start:stop, left:right] = values
    assert len(np.unique(whole)) == whole.size


def put_alone(name: str) -> bool:
    """Place a batch on process 0 while process 1 places none."""
    if rank.this().rank == 0:
        layout, spec, batch_size, _ = CASES[name]
        placement = Placement(
            make_options(batch_size=batch_size, sharding=sharding_of(layout, *spec))
        )
        (array,) = placement.put([own_rows(0, batch_size)])
        array.block_until_ready()
    return True


@pytest.mark.parametrize("name", CASES)
def test_a_put_waits_for_no_other_process(gang: Gang, name: str) -> None:
    """A process places its rows although the other never places any: no hidden collective."""
    assert returned(gang.run(put_alone, name)) == [True, True]


def refused() -> str:
    """Return why a sharding whose rows overlap between processes is refused."""
    devices = np.array(jax.devices())
    order = [0, 4, 1, 2, 3, 5, 6, 7]  # model rows of one mesh row belong to both processes
    mesh = Mesh(devices[order].reshape(4, 2), ("data", "model"))
    partitions: Any = PartitionSpec
    sharding = NamedSharding(mesh, partitions("data"))
    try:
        Placement(make_options(batch_size=8, sharding=sharding))
    except OptionError as error:
        return f"{error.argument}: {error}"
    return "accepted"


def missing() -> str:
    """Return why a sharding without a device of process 1 is refused."""
    partitions: Any = PartitionSpec
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("data",)), partitions("data"))
    try:
        Placement(make_options(batch_size=8, sharding=sharding))
    except OptionError as error:
        return f"{error.argument}: {error}"
    return "accepted"


def test_rows_that_overlap_between_processes_are_refused_on_both(gang: Gang) -> None:
    """Row sets of two processes must be the same or disjoint; both processes say so."""
    first, second = returned(gang.run(refused))

    assert first == second
    assert first.startswith("sharding: ")
    assert "hold some of the same rows, but not all" in first


def test_a_process_without_a_device_is_refused_on_both(gang: Gang) -> None:
    """A sharding over the devices of one process is an error on both, which names the other."""
    first, second = returned(gang.run(missing))

    assert first == second
    assert "process 1 has no device in it" in first
