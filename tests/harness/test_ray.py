"""Outcomes of Ray actors: the same as of local processes, and datasets as arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness import Died, Gang, Hung, Outcome, Raised, Returned, Undecided, rank
from tests.harness import cases

STALL_S = 2.0
# What a verdict may take beyond stall_s, on a machine whose cores are busy with other things.
SLACK_S = 5.0

# Ray makes its own settings in a way that it warns of.
reads_data = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")

both = pytest.mark.parametrize("culprit", [0, 1])


@pytest.fixture(scope="module")
def ray_gang() -> Iterator[Gang]:
    """Two actors of two devices, on a cluster of their own, kept warm between tests."""
    with Gang(processes=2, devices_per_process=2, backend="ray") as gang:
        yield gang


def run(gang: Gang, fn: Callable[..., Any], *args: Any) -> list[Outcome]:
    """Run with a short stall_s, and see that the verdict is in time."""
    gang.run(cases.give)  # a fresh start is not part of the time measured
    start_s = time.monotonic()
    outcomes = gang.run(fn, *args, stall_s=STALL_S, deadline_s=60)

    assert time.monotonic() - start_s < STALL_S + SLACK_S
    assert [outcome.rank for outcome in outcomes] == [0, 1]
    assert all(outcome.describe() for outcome in outcomes)
    return outcomes


def test_values_return_in_the_order_of_ranks(ray_gang: Gang) -> None:
    """Each actor returns its own value; arguments per rank come before those for all."""
    outcomes = ray_gang.run(cases.give, "all", per_rank=[(1, "a"), (2, "b")], key=[3])

    values = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert values == [(1, "a", "all", ("key", [3])), (2, "b", "all", ("key", [3]))]


def test_actors_share_one_jax_session(ray_gang: Gang) -> None:
    """JAX sees all actors, with the devices that were asked for, and a collective runs."""
    described = ray_gang.run(cases.describe_jax)
    gathered = ray_gang.run(cases.gather)

    values = [outcome.value for outcome in described if isinstance(outcome, Returned)]
    assert values == [(0, 2, 2, "cpu"), (1, 2, 2, "cpu")]
    assert [o.value for o in gathered if isinstance(o, Returned)] == [[0, 1], [0, 1]]


def test_the_function_runs_in_the_main_thread(ray_gang: Gang) -> None:
    """As on local processes, the function has the process's main thread."""
    outcomes = ray_gang.run(_in_main_thread)

    assert [o.value for o in outcomes if isinstance(o, Returned)] == [True, True]


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


def test_output_is_the_tail_of_this_run(ray_gang: Gang) -> None:
    """A flood ends, its tail is kept, and the next run does not show it."""
    flooded = ray_gang.run(cases.flood, 32)
    outcomes = ray_gang.run(print, "now")

    assert all(outcome.output.endswith("last words\n") for outcome in flooded)
    assert all(len(outcome.output) <= 16 * 1024 for outcome in flooded)
    assert [outcome.output for outcome in outcomes] == ["now\n", "now\n"]


@both
def test_an_actor_that_raises_hangs_those_that_wait_for_it(ray_gang: Gang, culprit: int) -> None:
    """One raised, with its traceback; the other is hung, with stacks and a sentence."""
    outcomes = run(ray_gang, cases.culprit_then_gather, culprit, "raise")

    error, waiter = outcomes[culprit], outcomes[1 - culprit]
    assert isinstance(error, Raised)
    assert (error.type, error.message, error.notes) == ("ValueError", "no more rows", ("shard 7",))
    assert "in culprit_then_gather" in error.traceback
    assert isinstance(waiter, Hung)
    assert "in gather" in waiter.stacks
    assert waiter.why.startswith(
        f"rank {culprit} raised ValueError after event #1 'batch' (k=1); "
        f"rank {1 - culprit} waits in a collective at cases.py"
    )


@both
def test_an_actor_that_is_stopped_is_named(ray_gang: Gang, culprit: int) -> None:
    """Both are hung, only one is stopped, and the sentence says which."""
    outcomes = run(ray_gang, cases.culprit_then_gather, culprit, "SIGSTOP")

    stopped, waiter = outcomes[culprit], outcomes[1 - culprit]
    assert isinstance(stopped, Hung)
    assert isinstance(waiter, Hung)
    assert (stopped.stopped, waiter.stopped) == (True, False)
    assert waiter.why.startswith(f"rank {culprit} is stopped (SIGSTOP) after event #1")


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


def test_sys_exit_is_an_exception_like_others(ray_gang: Gang) -> None:
    """sys.exit(0) is raised, and the actors live on."""
    restarts = ray_gang.restarts
    ray_gang.run(cases.give)
    outcomes = ray_gang.run(_exit)

    assert [o.type for o in outcomes if isinstance(o, Raised)] == ["SystemExit"] * 2
    assert ray_gang.restarts <= restarts + 1


def _exit() -> None:
    cases.FAULTS["sys.exit(0)"]()


def test_an_actor_that_computes_is_slow_not_hung(ray_gang: Gang) -> None:
    """An actor that is late by computing, and the one that waits for it, return in the end."""
    outcomes = ray_gang.run(cases.compute_then_gather, 1, 3 * STALL_S, stall_s=STALL_S)

    assert [o.value for o in outcomes if isinstance(o, Returned)] == [[0, 1], [0, 1]]


def test_the_deadline_leaves_a_computing_gang_undecided(ray_gang: Gang) -> None:
    """What still computes at the deadline is undecided, with stacks."""
    outcomes = ray_gang.run(cases.compute_then_gather, 1, 1e6, deadline_s=1)

    assert all(isinstance(outcome, Undecided) for outcome in outcomes)
    assert isinstance(outcomes[1], Undecided)
    assert "in compute_then_gather" in outcomes[1].stacks


def test_unpicklable_values_are_refused_both_ways(ray_gang: Gang) -> None:
    """An argument that cannot travel raises here, a value that cannot is an outcome."""
    with pytest.raises(TypeError, match="give or its arguments cannot be pickled"):
        ray_gang.run(cases.give, per_rank=[(1,), (cases.Unpicklable(),)])
    outcomes = ray_gang.run(cases.give_unpicklable)

    assert all(
        isinstance(o, Raised) and "(Unpicklable) cannot be pickled" in o.message for o in outcomes
    )


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

    parts = ray.data.range(10, override_num_blocks=2).split_at_indices([7])
    outcomes = ray_gang.run(read_rows, per_rank=[(part,) for part in parts], deadline_s=120)

    values = [sorted(outcome.value) for outcome in outcomes if isinstance(outcome, Returned)]
    assert values == [list(range(7)), list(range(7, 10))]


def test_two_gangs_share_a_cluster(ray_gang: Gang) -> None:
    """A second gang uses the first one's cluster, and its end leaves that alone."""
    with Gang(processes=2, backend="ray") as other:
        assert all(isinstance(outcome, Returned) for outcome in other.run(cases.gather))

    assert all(isinstance(outcome, Returned) for outcome in ray_gang.run(cases.gather))
