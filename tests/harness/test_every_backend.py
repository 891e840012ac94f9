"""Outcomes that are the same whatever the ranks are: local processes, actors of Ray."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness import Gang, Hung, Outcome, Raised, Returned, Undecided
from harness.verdict import verdict
from tests.harness import cases
from tests.harness.conftest import START_TIMEOUT_S, run_in_time

STALL_S = 2.0

both = pytest.mark.parametrize("culprit", [0, 1])


@pytest.fixture(scope="module", params=["local", "ray"])
def gang(request: pytest.FixtureRequest) -> Iterator[Gang]:
    """Two ranks of two devices, kept warm between tests."""
    with Gang(
        processes=2,
        devices_per_process=2,
        backend=request.param,
        start_timeout_s=START_TIMEOUT_S,
    ) as gang:
        yield gang


def run(gang: Gang, fn: Callable[..., Any], *args: Any) -> list[Outcome]:
    """See `run_in_time`."""
    return run_in_time(gang, fn, *args, stall_s=STALL_S)


def test_values_return_in_the_order_of_ranks(gang: Gang) -> None:
    """Each rank returns its own value; arguments per rank come before those for all."""
    outcomes = gang.run(cases.give, "all", per_rank=[(1, "a"), (2, "b")], key=[3])

    values = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert values == [(1, "a", "all", ("key", [3])), (2, "b", "all", ("key", [3]))]


def test_ranks_share_one_jax_session(gang: Gang) -> None:
    """JAX sees all ranks, with the devices that were asked for, and a collective runs."""
    described = gang.run(cases.describe_jax)
    gathered = gang.run(cases.gather)

    values = [outcome.value for outcome in described if isinstance(outcome, Returned)]
    assert values == [(0, 2, 2, "cpu"), (1, 2, 2, "cpu")]
    assert [o.value for o in gathered if isinstance(o, Returned)] == [[0, 1], [0, 1]]


def test_the_function_runs_in_the_main_thread(gang: Gang) -> None:
    """The function may set signal handlers: it has the process's main thread."""
    outcomes = gang.run(_in_main_thread)

    assert [o.value for o in outcomes if isinstance(o, Returned)] == [True, True]


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def test_output_is_the_tail_of_this_run(gang: Gang) -> None:
    """A flood ends, its last 16 KiB are kept, and the next run does not show it."""
    flooded = gang.run(cases.flood, 32, deadline_s=60)
    outcomes = gang.run(print, "now")

    assert all(isinstance(outcome, Returned) for outcome in flooded)
    assert all(outcome.output.endswith("last words\n") for outcome in flooded)
    assert all(1024 < len(outcome.output) <= 16 * 1024 for outcome in flooded)
    assert [outcome.output for outcome in outcomes] == ["now\n", "now\n"]


@both
def test_a_rank_that_raises_hangs_those_that_wait_for_it(gang: Gang, culprit: int) -> None:
    """One raised, with its traceback; the other is hung, with stacks and a sentence."""
    outcomes = run(gang, cases.culprit_then_gather, culprit, "raise")

    error, waiter = outcomes[culprit], outcomes[1 - culprit]
    assert isinstance(error, Raised)
    assert (error.type, error.message, error.notes) == ("ValueError", "no more rows", ("shard 7",))
    assert error.mro == ("ValueError", "Exception", "BaseException", "object")
    assert "in culprit_then_gather" in error.traceback
    assert isinstance(waiter, Hung)
    assert "in gather" in waiter.stacks
    assert waiter.why.startswith(
        f"rank {culprit} raised ValueError after event #1 'batch' (k=1); "
        f"rank {1 - culprit} waits in a collective at cases.py"
    )


@both
def test_a_hang_in_a_step_that_has_run_before_is_one_in_a_collective(
    gang: Gang, culprit: int
) -> None:
    """Such a step has no frame of JAX, and is told from other waits; who is missing is named."""
    outcomes = run(gang, cases.steps_without, culprit)

    found = verdict(outcomes)
    assert (found.word, found.ranks) == ("missing rank", (culprit,))
    assert "in read_value (return own.recv(1)" in found.because
    waits = {wait.rank: wait.place for wait in found.waiting}
    assert waits[1 - culprit].startswith("in a collective at cases.py")
    assert waits[1 - culprit].endswith("in steps_without (step(x))")


@both
def test_a_stopped_rank_is_named(gang: Gang, culprit: int) -> None:
    """Both are hung, only one is stopped, and the sentence says which."""
    outcomes = run(gang, cases.culprit_then_gather, culprit, "SIGSTOP")

    stopped, waiter = outcomes[culprit], outcomes[1 - culprit]
    assert isinstance(stopped, Hung)
    assert isinstance(waiter, Hung)
    assert (stopped.stopped, waiter.stopped) == (True, False)
    assert waiter.why.startswith(f"rank {culprit} is stopped (SIGSTOP) after event #1")


@both
def test_sys_exit_is_an_exception_like_others(gang: Gang, culprit: int) -> None:
    """sys.exit(0) does not end the process: it is raised, with its code as the message."""
    outcomes = run(gang, cases.culprit_then_sleep, culprit, "sys.exit(0)")

    error = outcomes[culprit]
    assert isinstance(error, Raised)
    assert (error.type, error.message) == ("SystemExit", "0")


def test_the_deadline_leaves_a_computing_gang_undecided(gang: Gang) -> None:
    """What still computes at the deadline is not hung but undecided, with stacks."""
    outcomes = gang.run(cases.compute_then_gather, 1, 1e6, stall_s=STALL_S, deadline_s=3)

    for outcome in outcomes:
        assert isinstance(outcome, Undecided)
        assert "the deadline of 3 s passed" in outcome.describe()
    assert isinstance(outcomes[1], Undecided)
    assert "in compute_then_gather" in outcomes[1].stacks
    assert "rank 0 waits in a collective" in outcomes[1].why
    assert "rank 1 is busy at cases.py" in outcomes[1].why


def test_unpicklable_values_are_refused_both_ways(gang: Gang) -> None:
    """An argument that cannot travel raises here, a value that cannot is an outcome."""
    with pytest.raises(TypeError, match="give or its arguments cannot be pickled"):
        gang.run(cases.give, per_rank=[(1,), (cases.Unpicklable(),)])
    outcomes = gang.run(cases.give_unpicklable)

    for outcome in outcomes:
        assert isinstance(outcome, Raised)
        assert outcome.message == (
            "the return value (Unpicklable) cannot be pickled: stays where it is"
        )
