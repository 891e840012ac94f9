"""Ranks on TPU slices: reserved, numbered, watched and given back, on slices that are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import tests
from harness import Died, Gang, Hung, Raised, Returned
from harness.backends.environment import shipped
from harness.backends.fake_slice import FakeSlices
from harness.backends.slices import NoSliceError, SliceShape
from harness.backends.tpu_slice import TpuBackend
from tests.harness import cases
from tests.harness.conftest import is_alive, wait_until

# Two slices of two hosts: as few nodes as show what several hosts and several slices are.
SHAPE = SliceShape("2x2x2", "v4", 2)
STALL_S = 3.0
LIMIT_S = 20.0
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeSlices]:
    """Two slices that are not there, and this process connected to their cluster."""
    # With a folder of its own, Ray does not let ranks import from where this process works.
    own = {"working_dir": str(tmp_path_factory.mktemp("empty"))}
    with FakeSlices(SHAPE) as fake:
        ray.init(fake.address, runtime_env=shipped([tests], own), log_to_driver=False)
        yield fake
        ray.shutdown()


def backend(slices: int = 2, *, reserve_timeout_s: float = 240.0, **options: Any) -> TpuBackend:
    """Give a backend for that many of the slices; its time-out is for busy cores."""
    return TpuBackend(
        SHAPE.topology,
        SHAPE.version,
        slices,
        platform="cpu",
        reserve_timeout_s=reserve_timeout_s,
        **options,
    )


@pytest.fixture(scope="module")
def gang(fake: FakeSlices) -> Iterator[Gang]:  # noqa: ARG001 - it must be there
    """A rank on each host of both slices."""
    with Gang(backend=backend()) as gang:
        yield gang


def values(outcomes: Any) -> list[Any]:
    """What the ranks have returned; all of them must have."""
    assert all(isinstance(o, Returned) for o in outcomes), [o.describe() for o in outcomes]
    return [outcome.value for outcome in outcomes]


def about() -> tuple[Any, ...]:
    """Say where this rank is, and what it was given."""
    import jax

    import harness

    labels = ray.get_runtime_context().get_node_labels()
    megascale = {k: v for k, v in os.environ.items() if k.startswith("MEGASCALE")}
    here = (labels["ray.io/tpu-slice-name"], labels["ray.io/tpu-worker-id"])
    devices = (jax.process_index(), jax.local_device_count(), jax.device_count())
    return here, devices, megascale, harness.__file__


def test_ranks_are_numbered_by_slice_and_worker(gang: Gang) -> None:
    """One process a host, all its chips, in JAX's order; code from Ray, not from a checkout."""
    here, devices, megascale, files = zip(*values(gang.run(about)), strict=True)

    first = here[0][0]
    assert [worker for _, worker in here] == ["0", "1", "0", "1"]
    assert [name == first for name, _ in here] == [True, True, False, False]
    assert devices == tuple((rank, 4, 16) for rank in range(4))
    assert [each["MEGASCALE_SLICE_ID"] for each in megascale] == ["0", "0", "1", "1"]
    assert {each["MEGASCALE_NUM_SLICES"] for each in megascale} == {"2"}
    assert len({each["MEGASCALE_COORDINATOR_ADDRESS"] for each in megascale}) == 1
    assert all("/runtime_resources/py_modules_files/" in file for file in files), files


def test_a_hang_has_stacks_of_hosts_that_cannot_be_signalled(gang: Gang) -> None:
    """One raised on its host; what the others wait for is read there."""
    outcomes = gang.run(cases.culprit_then_gather, 2, "raise", stall_s=STALL_S)

    assert isinstance(outcomes[2], Raised)
    for rank in (0, 1, 3):
        waiter = outcomes[rank]
        assert isinstance(waiter, Hung)
        assert "in gather" in waiter.stacks
        assert waiter.why.startswith("rank 2 raised ValueError after event #1 'batch' (k=1)")


def test_a_stopped_rank_is_named_and_ended(gang: Gang) -> None:
    """Fresh ranks are on the same slices, which stay reserved meanwhile."""
    pids = values(gang.run(cases.own_pid))
    stopped = gang.run(cases.culprit_then_gather, 3, "SIGSTOP", stall_s=STALL_S)

    assert [isinstance(o, Hung) and o.stopped for o in stopped] == [False, False, False, True]
    assert wait_until(lambda: not any(map(is_alive, pids)), 10)


def test_a_dead_rank_keeps_its_record(gang: Gang) -> None:
    """What a rank has recorded before it was killed is read on its host."""
    outcomes = gang.run(cases.culprit_then_sleep, 1, "SIGKILL", stall_s=STALL_S)

    assert isinstance(outcomes[1], Died)
    assert [event.fields["k"] for event in outcomes[1].events] == [0, 1]


def test_slices_in_use_are_not_given_twice(gang: Gang) -> None:
    """The error comes within the limit, says what the cluster has, and leaves the gang alone."""
    with pytest.raises(NoSliceError, match=r"(?s)no 1 x v4 2x2x2 .* within 2 s; .*fake-1.*free: 0"):
        Gang(backend=backend(1, reserve_timeout_s=2.0))

    assert values(gang.run(cases.gather)) == [list(range(4))] * 4


def test_the_slices_are_free_again_after_close(gang: Gang) -> None:
    """No placement group, actor or chip stays taken."""
    gang.run(cases.give)
    gang.close()

    assert wait_until(lambda: ray.available_resources().get("TPU") == 16, LIMIT_S)
    assert reserved() == 0


def reserved() -> int:
    """Give the number of placement groups that are not removed."""
    groups = ray.util.placement_group_table().values()
    return sum(group["state"] != "REMOVED" for group in groups)


def test_a_killed_parent_gives_its_slice_back(fake: FakeSlices) -> None:
    """On a cluster that lives on: neither placement group nor actor nor process stays."""
    command = [sys.executable, "-m", "tests.harness.parents", "run", f"tpu={fake.address}", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = json.loads(parent.stdout.readline())
        held = reserved()
        parent.kill()

    assert held > 0
    assert wait_until(lambda: reserved() == 0, LIMIT_S)
    assert wait_until(lambda: ray.available_resources().get("TPU") == 16, LIMIT_S)
    assert wait_until(lambda: not any(map(is_alive, pids)), LIMIT_S)


def test_the_suite_says_what_the_cluster_has_where_it_lacks_the_slice(fake: FakeSlices) -> None:
    """`ci.tpu` exits with 2, and nothing of the suite runs."""
    done = subprocess.run(
        [sys.executable, "-m", "ci.tpu", "--topology", "4x4", "--reserve-timeout", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "RAY_ADDRESS": fake.address},
    )

    assert done.returncode == 2, done.stdout + done.stderr
    assert "no 1 x v6e 4x4 (type v6e-16, 4 hosts of 4 chips) was free within 2 s" in done.stdout
    assert "fake-0: v4-16, topology 2x2x2, hosts: 2, chips: 8" in done.stdout
    assert " passed" not in done.stdout
