"""Slices in words, and which process of a slice is which rank: without a cluster."""

from __future__ import annotations

import re

import pytest

from harness import Gang, GangStartError
from harness.backends.jax_trainer import loop_last
from harness.backends.ray_main import Place
from harness.backends.slices import SliceShape, describe_tpus
from harness.backends.tpu_slice import TpuBackend, order_of


def test_a_shape_says_its_hosts_and_chips() -> None:
    """Hosts and chips follow from topology, version and number of slices."""
    one, two = SliceShape("4x4", "v6e"), SliceShape("2x2x2", "v4", 2)

    assert (one.pod_type, one.hosts, one.chips_per_host) == ("v6e-16", 4, 4)
    assert (two.pod_type, two.hosts, two.chips_per_host) == ("v4-16", 4, 4)
    assert str(two) == "2 x v4 2x2x2"


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (("4x4", "v9"), "version must be one of v2, v3, .* not 'v9'"),
        (("3x5", "v6e"), "topology '3x5' is none that v6e has: 1x1, 2x2, 2x4, "),
        (("4x4", "v6e", 0), "slices must be a whole number of 1 or more, not 0"),
    ],
)
def test_an_unknown_shape_is_refused(shape: tuple[str, str, int], words: str) -> None:
    """The error names the argument, its value and what there is."""
    with pytest.raises(ValueError, match=words):
        SliceShape(*shape)


def test_the_name_tpu_alone_is_refused() -> None:
    """The error says what to give instead."""
    with pytest.raises(ValueError, match=re.escape("give TpuBackend(topology, version)")):
        Gang(backend="tpu")


def test_other_numbers_of_processes_than_hosts_are_refused() -> None:
    """The error says how many hosts of how many chips the slice has."""
    with pytest.raises(GangStartError, match="1 x v6e 4x4 has 4 hosts of 4 chips, not 2 of 4"):
        Gang(processes=2, backend=TpuBackend("4x4", "v6e"))


def node(name: str, worker: int, chips: int = 4, *, alive: bool = True) -> dict[str, object]:
    """Give a node as `ray.nodes()` does."""
    return {
        "NodeID": f"{name}-{worker}",
        "Alive": alive,
        "Resources": {"TPU": chips, "CPU": 1},
        "Labels": {
            "ray.io/tpu-slice-name": name,
            "ray.io/tpu-worker-id": str(worker),
            "ray.io/tpu-pod-type": "v6e-16",
            "ray.io/tpu-topology": "4x4",
        },
    }


def test_what_a_cluster_has_is_said_slice_by_slice() -> None:
    """Dead nodes do not count, chips in use are not free, and a slice without head is told."""
    nodes = [node("a", 0), node("a", 1), node("b", 1), node("b", 0, alive=False)]
    text = describe_tpus(nodes, {"a-0": {"TPU": 4}, "b-1": {"TPU": 1}})

    assert text.splitlines() == [
        "the cluster has",
        "  a: v6e-16, topology 4x4, hosts: 2, chips: 8, free: 4",
        "  b: v6e-16, topology 4x4, hosts: 1, chips: 4, free: 1, no worker 0",
    ]


def test_a_cluster_without_tpu_says_what_it_has_instead() -> None:
    """Resources are named, but not addresses and memory."""
    nodes = [
        {"NodeID": "n", "Alive": True, "Resources": {"CPU": 2, "node:1.2.3.4": 1, "memory": 9}}
    ]

    assert describe_tpus(nodes, {}) == "the cluster has no TPU: 1 nodes with CPU"


def place(name: str, worker: int | None) -> Place:
    """Give a place on a host of a slice."""
    return Place("node", "address", 1, name, worker)


def test_ranks_follow_slices_and_worker_ids() -> None:
    """The index of a bundle is not the number of its host."""
    places = [place("a", 2), place("a", 0), place("a", 1), place("b", 1), place("b", 2)]
    places.append(place("b", 0))

    assert order_of(places, 2) == [1, 2, 0, 5, 3, 4]


@pytest.mark.parametrize(
    "places",
    [
        [place("a", 0), place("a", None)],
        [place("a", 1), place("a", 2)],
        [place("a", 0), place("b", 1)],
    ],
)
def test_hosts_that_make_no_slice_are_refused(places: list[Place]) -> None:
    """Without whole slices JAX could not start, so the labels that lack are named."""
    with pytest.raises(GangStartError, match=r"slice 0 has workers .* ray.io/tpu-worker-id"):
        order_of(places, 1)


def test_the_thread_of_the_train_loop_comes_last() -> None:
    """Where others have the main thread, whose place is told."""
    loop = 'Thread 0x2 (most recent call first):\n  File "/a/harness/rank.py", line 9 in execute\n'
    main = 'Thread 0x1 (most recent call first):\n  File "/a/worker.py", line 9 in main\n'

    assert loop_last(f"{loop}\n{main}") == f"{main}\n{loop}"
