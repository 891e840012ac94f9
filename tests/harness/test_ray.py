"""Outcomes of Ray actors: the same as of local processes, and datasets as arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness import Died, Gang, Hung, Outcome, Returned, rank
from tests.harness import cases
from tests.harness.conftest import run_in_time

STALL_S = 2.0

# Ray makes its own settings in a way that it warns of.
reads_data = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")

both = pytest.mark.parametrize("culprit", [0, 1])


@pytest.fixture(scope="module")
def ray_gang() -> Iterator[Gang]:
    """Two actors of two devices, on a cluster of their own, kept warm between tests."""
    with Gang(processes=2, devices_per_process=2, backend="ray") as gang:
        yield gang


def run(gang: Gang, fn: Callable[..., Any], *args: Any) -> list[Outcome]:
    """See `run_in_time`."""
    return run_in_time(gang, fn, *args, stall_s=STALL_S)


@both
@pytest.mark.parametrize("fault", ["SIGKILL", "os._exit(0)"])
def test_an_actor_that_dies_keeps_its_record(ray_gang: Gang, culprit: int, fault: str) -> None:
    """Its events are there; the other is aborted by process 0's death, and hung by another's."""
    outcomes = run(ray_gang, cases.culprit_then_sleep, culprit, fault)

    dead, other = outcomes[culprit], outcomes[1 - culprit]
    assert isinstance(dead, Died)
    assert dead.after is None
    # Before Linux 6.15 the kernel does not tell how a process that is not a child has ended.
    how = (dead.exit_status, dead.signal)
    assert how in [(None, None), (None, "SIGKILL") if fault == "SIGKILL" else (0, None)]
    assert [event.fields["k"] for event in dead.events] == [0, 1]
    if culprit == 0:
        assert isinstance(other, Died)
        assert other.after == 0
        # By JAX, whose older versions exit.
        assert other.signal == "SIGABRT" or other.exit_status == 1
    else:
        assert isinstance(other, Hung)
        assert other.why.startswith("rank 1 died")


def test_an_actor_that_computes_is_slow_not_hung(ray_gang: Gang) -> None:
    """An actor that is late by computing, and the one that waits for it, return in the end."""
    outcomes = ray_gang.run(cases.compute_then_gather, 1, 3 * STALL_S, stall_s=STALL_S)

    assert [o.value for o in outcomes if isinstance(o, Returned)] == [[0, 1], [0, 1]]


def read_rows(batches: Any) -> list[int]:
    """Read a split to its end, with an event a batch."""
    rows: list[int] = []
    for batch in batches.iter_batches(batch_size=4):
        rank.record("batch", rows=len(batch["id"]))
        rows += [int(each) for each in batch["id"]]
    return rows


def slowly(batch: dict[str, Any]) -> dict[str, Any]:
    """Take half a second a batch without using a core, in a worker of the cluster."""
    time.sleep(0.5)
    return batch


@reads_data
@pytest.mark.parametrize("equal", [True, False])
def test_splits_of_a_stream_travel_as_arguments(ray_gang: Gang, equal: bool) -> None:
    """Each rank reads its own split; together they have each row once; no thread is left."""
    import ray

    # Tasks that sleep are no progress of anybody: the default stall_s is made for that.
    dataset = ray.data.range(20, override_num_blocks=4).map_batches(slowly)
    splits = dataset.streaming_split(2, equal=equal)
    outcomes = ray_gang.run(read_rows, per_rank=[(s,) for s in splits], deadline_s=120)

    rows = []
    for outcome in outcomes:
        assert isinstance(outcome, Returned), outcome.describe()
        assert outcome.left_threads == ()
        rows += outcome.value
    assert sorted(rows) == list(range(20))


@reads_data
def test_parts_of_a_dataset_travel_as_arguments(ray_gang: Gang) -> None:
    """Materialised, uneven parts are read by their ranks."""
    import ray

    # In one block: of several, Ray keeps no order.
    parts = ray.data.range(10, override_num_blocks=1).split_at_indices([7])
    outcomes = ray_gang.run(read_rows, per_rank=[(part,) for part in parts], deadline_s=120)

    values = [sorted(outcome.value) for outcome in outcomes if isinstance(outcome, Returned)]
    assert values == [list(range(7)), list(range(7, 10))]


def test_two_gangs_share_a_cluster(ray_gang: Gang) -> None:
    """A second gang uses the first one's cluster, and its end leaves that alone."""
    with Gang(processes=2, backend="ray") as other:
        assert all(isinstance(outcome, Returned) for outcome in other.run(cases.gather))

    assert all(isinstance(outcome, Returned) for outcome in ray_gang.run(cases.gather))
