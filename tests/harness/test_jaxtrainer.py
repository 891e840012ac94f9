"""Ranks in the train loop of Ray Train's JaxTrainer: same calls, same outcomes, shards of Train."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from harness import Died, Gang, GangStartError, Hung, Raised, Returned, rank
from harness.backends.jax_trainer import JaxTrainerBackend
from harness.backends.ray_cluster import enter
from tests.harness import cases
from tests.harness.conftest import is_alive, wait_until
from tests.harness.places import see_that_nothing_is_left

STALL_S = 3.0
CONTROLLER_LIMIT_S = 60.0  # a process that may only be about to start
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One cluster for all gangs here."""
    leave = enter()
    yield
    leave()


@pytest.fixture(scope="module")
def trainer_gang(cluster: None) -> Iterator[Gang]:  # noqa: ARG001 - it must be there
    """Two workers of two devices, without data, kept warm between tests."""
    with Gang(2, 2, backend="jaxtrainer") as gang:
        yield gang


def values(outcomes: Any) -> list[Any]:
    """What the ranks have returned; all of them must have."""
    assert all(isinstance(o, Returned) for o in outcomes), [o.describe() for o in outcomes]
    return [outcome.value for outcome in outcomes]


def in_train() -> tuple[int, int, bool]:
    """Give Ray Train's rank, JAX's, and whether this is the main thread."""
    import threading

    import jax
    import ray.train

    index = ray.train.get_context().get_world_rank()
    return index, jax.process_index(), threading.current_thread() is threading.main_thread()


def test_the_function_runs_inside_the_train_loop(trainer_gang: Gang) -> None:
    """Ray Train's context is there, its ranks are JAX's, and a collective runs; all stays warm."""
    inside = trainer_gang.run(in_train)
    described = trainer_gang.run(cases.describe_jax)

    assert values(inside) == [(0, 0, False), (1, 1, False)]
    assert values(described) == [(0, 2, 2, "cpu"), (1, 2, 2, "cpu")]
    assert values(trainer_gang.run(cases.gather)) == [[0, 1], [0, 1]]
    assert [o.output for o in trainer_gang.run(print, "now")] == ["now\n", "now\n"]
    assert trainer_gang.restarts == 0


def stop_or_raise_before_gather(fault: str) -> list[int]:
    """Rank 1 has a fault; the other enters a collective."""
    rank.record("batch")
    if rank.this().rank == 1:
        cases.FAULTS[fault]()
        # A stop takes a moment to reach this thread.
        cases.sleep_for_ever()
    return cases.gather()


@pytest.mark.parametrize("fault", ["raise", "SIGSTOP"])
def test_a_hang_names_who_is_waited_for(trainer_gang: Gang, fault: str) -> None:
    """As on other backends, and the place told is that of the train loop's thread."""
    outcomes = trainer_gang.run(stop_or_raise_before_gather, fault, stall_s=STALL_S)

    waiter = outcomes[0]
    assert isinstance(waiter, Hung)
    assert isinstance(outcomes[1], Raised if fault == "raise" else Hung)
    what = "raised ValueError" if fault == "raise" else "is stopped (SIGSTOP)"
    assert waiter.why.startswith(f"rank 1 {what} after event #0 'batch'")
    assert "rank 0 waits in a collective at cases.py" in waiter.why
    assert "in gather" in waiter.stacks


def test_a_dead_worker_keeps_its_record(trainer_gang: Gang) -> None:
    """Ray Train ends the others when it notices; fresh workers run on."""
    outcomes = trainer_gang.run(cases.culprit_then_sleep, 1, "SIGKILL", stall_s=20)

    dead, other = outcomes[1], outcomes[0]
    assert isinstance(dead, Died)
    assert [event.fields["k"] for event in dead.events] == [0, 1]
    assert isinstance(other, Died)
    assert other.after == 1
    assert values(trainer_gang.run(cases.give, 1)) == [(1,), (1,)]


def test_nothing_of_a_trainer_is_left(trainer_gang: Gang) -> None:
    """Once the gang is closed: no worker process, actor or placement group on the cluster."""
    pids = values(trainer_gang.run(cases.own_pid))
    trainer_gang.close()

    assert wait_until(lambda: not any(map(is_alive, pids)), 10)
    see_that_nothing_is_left()


def read(*names: str) -> list[list[int]]:
    """Read the rank's shard of each name."""
    import ray.train

    shards = [ray.train.get_dataset_shard(name) for name in names]
    return [[int(row["id"]) for row in shard.iter_rows()] for shard in shards]


@pytest.mark.usefixtures("cluster")
def test_shards_are_those_of_ray_train() -> None:
    """Ray Train splits in equal parts; what is over is not delivered."""
    import ray.data

    backend = JaxTrainerBackend(datasets={"train": ray.data.range(9, override_num_blocks=3)})
    with Gang(2, backend=backend) as gang:
        (one,), (other,) = values(gang.run(read, "train", deadline_s=120))

    assert len(one) == len(other) == 4
    assert len({*one, *other}) == 8


@pytest.mark.usefixtures("cluster")
def test_uneven_shards_arrive_as_they_were_made() -> None:
    """Each worker has the datasets that were made for it."""
    import ray.data

    # In one block: of several, Ray keeps no order.
    parts = ray.data.range(10, override_num_blocks=1).split_at_indices([7])
    shards = [{"train": part, "same": parts[0]} for part in parts]
    with Gang(2, backend=JaxTrainerBackend(shards=shards)) as gang:
        outcomes = gang.run(read, "train", "same", deadline_s=120)

    assert values(outcomes) == [[[*range(7)], [*range(7)]], [[7, 8, 9], [*range(7)]]]


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("limit_s", [0.1, 8])
def test_a_trainer_that_gets_no_resources_is_given_up(limit_s: float) -> None:
    """The gang does not start within its time; its trainer ends, even one that is to start."""
    before = set(threading.enumerate())
    ended = controllers_ended()
    scaling = {"resources_per_worker": {"what no node has": 1}}
    with pytest.raises(
        GangStartError, match=rf"start_timeout_s={limit_s}: ranks 0, 1 do not have a process"
    ):
        Gang(2, backend=JaxTrainerBackend(scaling=scaling), start_timeout_s=limit_s)

    # By name: Ray starts threads of its own when it likes.
    assert "gang-trainer" not in {thread.name for thread in set(threading.enumerate()) - before}
    assert wait_until(lambda: controllers_ended() > ended, CONTROLLER_LIMIT_S)
    see_that_nothing_is_left()


def controllers_ended() -> int:
    """How many controllers of trainers the cluster has had that have ended."""
    from ray._private.state import actors

    states = [a["State"] for a in actors().values() if a["ActorClassName"] == "TrainController"]
    return states.count("DEAD")


def test_shards_and_datasets_exclude_each_other() -> None:
    """Both say how data is split."""
    with pytest.raises(ValueError, match="shards cannot go with datasets or data_config"):
        JaxTrainerBackend(shards=[], datasets={})
