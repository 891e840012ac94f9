"""Every backend where a machine has neither TPU nor cluster: what starts its ranks, by name."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.backends import Backend

NAMES = ("local", "ray", "jaxtrainer", "slice")
LEFT_LIMIT_S = 15.0
RESERVE_LIMIT_S = 240.0
# One a cluster, kept by Ray: whoever reads a dataset brings them.
RAYS_OWN = ("_AutoscalingCoordinatorActor", "_StatsActor", "_UsageCollectionActor")


@contextmanager
def place(name: str) -> Iterator[str | Backend]:
    """Give what `Gang` takes for a backend; a cluster that it needs is there meanwhile.

    `slice` is a TPU slice of two hosts that is not there.

    Raises:
        AssertionError: at the end the cluster has an actor or a placement group.
    """
    if name == "local":
        yield name
    elif name == "slice":
        with _slice() as backend:
            yield backend
    else:
        from harness.backends.ray_cluster import enter

        leave = enter()
        try:
            yield name
            see_that_nothing_is_left()
        finally:
            leave()


@contextmanager
def _slice() -> Iterator[Backend]:
    import ray

    import tests
    from harness.backends.environment import shipped
    from harness.backends.fake_slice import FakeSlices
    from harness.backends.slices import SliceShape
    from harness.backends.tpu_slice import TpuBackend

    shape = SliceShape("2x2x2", "v4")
    # With a folder of its own, Ray does not let ranks import from where this process works.
    with tempfile.TemporaryDirectory() as empty, FakeSlices(shape) as fake:
        ray.init(
            fake.address,
            runtime_env=shipped([tests], {"working_dir": empty}),
            log_to_driver=False,
        )
        try:
            yield TpuBackend(
                shape.topology,
                shape.version,
                platform="cpu",
                reserve_timeout_s=RESERVE_LIMIT_S,
            )
            see_that_nothing_is_left()
        finally:
            ray.shutdown()


def see_that_nothing_is_left() -> None:
    """Look at the cluster that this process is connected to.

    Raises:
        AssertionError: it has an actor that is not Ray's own, or a placement group.
    """
    from ray._private.state import actors

    deadline_s = time.monotonic() + LEFT_LIMIT_S
    while (left := [*_alive(actors()), *_groups()]) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert not left, f"left on the cluster: {left}"


def _alive(actors: dict[str, dict[str, Any]]) -> list[str]:
    return [
        told["ActorClassName"]
        for told in actors.values()
        if told["State"] != "DEAD" and told["ActorClassName"] not in RAYS_OWN
    ]


def _groups() -> list[str]:
    import ray

    groups = ray.util.placement_group_table().items()
    return [f"placement group {key}" for key, told in groups if told["state"] != "REMOVED"]
