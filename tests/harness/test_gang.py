"""A gang over many runs: what stays warm, what is made fresh, and wrong use."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Gang, GangStartError, PrepareError, Raised, Returned, rank
from tests.harness import cases
from tests.harness.conftest import is_alive, is_stopped, wait_until


def pids(gang: Gang) -> list[int]:
    """Process ids of the ranks."""
    return [o.value for o in gang.run(cases.own_pid) if isinstance(o, Returned)]


def test_a_gang_stays_warm(gang: Gang) -> None:
    """After runs that end alike, returned or raised, the processes are the same."""
    before, restarts = pids(gang), gang.restarts
    gang.run(cases.gather)
    gang.run(cases.raise_chained)
    gang.run(cases.give_unpicklable)

    assert pids(gang) == before
    assert gang.restarts == restarts


@pytest.mark.parametrize(
    "program",
    [
        lambda gang: gang.run(cases.culprit_then_sleep, 1, "raise", stall_s=0.5),
        lambda gang: gang.run(cases.culprit_then_sleep, 1, "SIGKILL", stall_s=0.5),
        lambda gang: gang.run(cases.leave_thread, "leaky", cases.FOR_EVER_S),
        lambda gang: gang.run(_raise_if, 0),
    ],
    ids=["hang", "death", "thread left", "only one raised"],
)
def test_a_gang_is_made_fresh(gang: Gang, program: Callable[[Gang], Any]) -> None:
    """After a run that ended in any other way, the next run has other processes."""
    before, restarts = pids(gang), gang.restarts
    program(gang)

    after = pids(gang)
    assert not set(before) & set(after)
    assert gang.restarts == restarts + 1
    assert [o.value for o in gang.run(cases.gather) if isinstance(o, Returned)] == [[0, 1]] * 2


def _raise_if(culprit: int) -> None:
    if rank.this().rank == culprit:
        raise ValueError


def test_a_fresh_start_is_not_part_of_a_run(gang: Gang) -> None:
    """A deadline far shorter than a start holds for the run alone."""
    gang.run(cases.culprit_then_sleep, 1, "SIGKILL", stall_s=0.5)
    outcomes = gang.run(cases.give, deadline_s=5.0, stall_s=0.5)

    assert all(isinstance(outcome, Returned) for outcome in outcomes)
    assert all(outcome.elapsed_s < 5 for outcome in outcomes)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_what_befalls_a_rank_between_runs_is_no_part_of_the_next(
    gang: Gang, number: signal.Signals
) -> None:
    """A rank that is killed or stopped while it waits for work is replaced first."""
    before, restarts = pids(gang), gang.restarts
    os.kill(before[1], number)

    assert wait_until(lambda: not is_alive(before[1]) or is_stopped(before[1]), 10)
    assert [o.value for o in gang.run(cases.gather) if isinstance(o, Returned)] == [[0, 1]] * 2
    assert gang.restarts == restarts + 1


def test_threads_left_behind_are_named(gang: Gang) -> None:
    """A thread that outlives the function is named; one that ends shortly after is not."""
    left = gang.run(cases.leave_thread, "leaky", cases.FOR_EVER_S)
    ended = gang.run(cases.leave_thread, "brief", 0.05)

    assert [o.left_threads for o in left if isinstance(o, Returned)] == [("leaky",)] * 2
    assert [o.left_threads for o in ended if isinstance(o, Returned)] == [()] * 2


def test_threads_that_may_stay_are_not_left_behind(gang: Gang) -> None:
    """A thread that the function lets stay asks for no fresh processes; in the next run it does."""
    before = pids(gang)
    stays = gang.run(_leave_and_let_stay, "parked")
    after = pids(gang)
    left = gang.run(cases.leave_thread, "parked", cases.FOR_EVER_S)

    assert before == after
    assert [o.left_threads for o in stays if isinstance(o, Returned)] == [()] * 2
    assert [o.left_threads for o in left if isinstance(o, Returned)] == [("parked",)] * 2


def _leave_and_let_stay(name: str) -> None:
    rank.let_threads_stay(name)
    cases.leave_thread(name, cases.FOR_EVER_S)


def test_a_child_that_the_function_forks_is_no_rank(gang: Gang) -> None:
    """When a function forks, only the rank answers, and the gang goes on."""
    outcomes = gang.run(cases.fork_and_return)

    assert all(isinstance(o, Returned) and o.value > 0 for o in outcomes)
    assert len(pids(gang)) == 2


def test_events_are_of_this_run_only(gang: Gang) -> None:
    """Each run numbers its events from 0, and has none of an earlier run."""
    for k in range(3):
        outcomes = gang.run(_record, k)

        assert [[(e.seq, e.fields["k"]) for e in o.events] for o in outcomes] == [[(0, k)]] * 2


def _record(k: int) -> None:
    rank.record("run", k=k)


def test_many_warm_runs_are_quick(gang: Gang) -> None:
    """A hundred runs that do nothing take well under 2 s, on a loaded machine too."""
    gang.run(cases.give)
    start_s = time.monotonic()
    for _ in range(100):
        gang.run(cases.give)

    assert time.monotonic() - start_s < 2.0


def test_prepare_runs_again_in_fresh_processes() -> None:
    """What prepare has set up is there in each set of processes; asked twice, it runs once."""
    with Gang(processes=1) as gang:
        gang.prepare(_count_preparations)
        gang.prepare(_count_preparations)
        before = gang.run(_preparations)
        gang.run(cases.culprit_then_sleep, 0, "SIGKILL")
        after = gang.run(_preparations)

    assert [o.value for o in [*before, *after] if isinstance(o, Returned)] == [1, 1]


def _count_preparations() -> None:
    import sys

    sys.modules["tests.harness.cases"].__dict__.setdefault("prepared", []).append(1)


def _preparations() -> int:
    return len(cases.__dict__.get("prepared", []))


def test_an_error_in_prepare_is_raised_in_the_parent(gang: Gang) -> None:
    """A preparation that fails raises, naming each rank's error, and the gang lives on."""
    with pytest.raises(PrepareError, match=r"Rank 0 raised KeyError: 'column'"):
        gang.prepare(cases.raise_chained)

    assert len(pids(gang)) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"processes": 0}, "processes must be a whole number of 1 or more, not 0"),
        ({"processes": 1.5}, "processes must be"),
        ({"devices_per_process": 0}, "devices_per_process must be"),
        ({"start_timeout_s": 0}, "start_timeout_s must be more than 0"),
        ({"backend": "cloud"}, "backend must be one of local, ray"),
    ],
)
def test_a_wrong_gang_is_refused(arguments: dict[str, Any], message: str) -> None:
    """An argument out of range raises a ValueError that names it, before anything starts."""
    with pytest.raises(ValueError, match=message):
        Gang(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"deadline_s": 0}, "deadline_s must be more than 0"),
        ({"stall_s": -1}, "stall_s must be more than 0"),
        ({"stops": [0, 2]}, "stops must be ranks from 0 to 1, not 2"),
        ({"per_rank": [(1,)]}, "per_rank must have one tuple a rank: 2, not 1"),
        ({"per_rank": ["ab", "cd"]}, "per_rank must have one tuple of arguments a rank"),
    ],
)
def test_a_wrong_run_is_refused(gang: Gang, arguments: dict[str, Any], message: str) -> None:
    """An argument of run out of range raises a ValueError that names it."""
    with pytest.raises(ValueError, match=message):
        gang.run(cases.give, **arguments)


def test_what_cannot_be_pickled_is_refused(gang: Gang) -> None:
    """A function, argument or rank's argument that cannot travel raises before anything runs."""
    before = pids(gang)
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"cannot be pickled.*lock"):
        gang.run(lambda: lock)
    with pytest.raises(TypeError, match="give or its arguments cannot be pickled"):
        gang.run(cases.give, lock)
    with pytest.raises(TypeError, match="give or its arguments cannot be pickled"):
        gang.run(cases.give, per_rank=[(1,), (lock,)])
    with pytest.raises(TypeError, match="fn must be callable, not int"):
        gang.run(3)  # type: ignore[arg-type]

    assert pids(gang) == before


def test_a_closed_gang_is_refused() -> None:
    """A closed gang runs nothing; closing it again does nothing."""
    gang = Gang(processes=1)
    gang.close()
    gang.close()

    with pytest.raises(RuntimeError, match="the gang is closed"):
        gang.run(cases.give)
    with pytest.raises(RuntimeError, match="the gang is closed"):
        gang.prepare(cases.give)


def test_two_threads_cannot_run_at_once() -> None:
    """A run while another is under way raises; closing the gang ends the one under way."""
    errors: list[str] = []

    def run_until_closed(gang: Gang) -> None:
        # The other thread may be the first to run something.
        while not errors:
            try:
                gang.run(cases.sleep_for_ever, stall_s=600, deadline_s=600)
            except RuntimeError as error:
                if "another thread runs something" not in str(error):
                    errors.append(str(error))

    with Gang(processes=1) as gang:
        thread = threading.Thread(target=run_until_closed, args=[gang])
        thread.start()
        deadline_s = time.monotonic() + 10
        refused = False
        while not refused and time.monotonic() < deadline_s:
            try:
                gang.run(cases.give)
            except RuntimeError as error:
                refused = "another thread runs something" in str(error)
    thread.join(10)

    assert refused
    assert not thread.is_alive()
    assert errors == ["the gang was closed during the run"]


def test_environment_and_options_reach_the_ranks() -> None:
    """`env` and `jax_config` are what the ranks see."""
    with Gang(processes=1, env={"COLOUR": "green"}, jax_config={"jax_enable_x64": True}) as gang:
        (outcome,) = gang.run(_options)

    assert isinstance(outcome, Returned)
    assert outcome.value == ("green", "int64")


def _options() -> tuple[str, str]:
    import os

    import jax.numpy as jnp

    return os.environ["COLOUR"], str(jnp.arange(3).dtype)


def test_a_gang_that_cannot_start_says_why() -> None:
    """An option that JAX does not know ends the ranks; the error shows their output."""
    with pytest.raises(GangStartError, match=r"not ready are ranks 0, 1(.|\n)*no_such_option"):
        Gang(processes=2, jax_config={"no_such_option": 1})


def test_a_gang_that_starts_too_slowly_says_who_is_missing() -> None:
    """When the time is up, the error names the limit and the ranks."""
    with pytest.raises(GangStartError, match=r"start_timeout_s=0.01: not ready are ranks 0, 1"):
        Gang(processes=2, start_timeout_s=0.01)


def test_both_ranks_raise_at_once_only_when_alike(gang: Gang) -> None:
    """All ranks that raise one type keep the gang warm; two types make it fresh."""
    restarts = gang.restarts
    outcomes = gang.run(_raise_own)
    gang.run(cases.give)

    assert [o.type for o in outcomes if isinstance(o, Raised)] == ["KeyError", "ValueError"]
    assert gang.restarts == restarts + 1


def _raise_own() -> None:
    raise [KeyError, ValueError][rank.this().rank]


def test_an_interrupted_run_makes_the_gang_fresh(gang: Gang) -> None:
    """An exception in the parent during a run ends the ranks; the next run has fresh ones."""
    before = pids(gang)
    timer = threading.Timer(0.5, _interrupt_main)
    with contextlib.ExitStack() as stack:
        stack.callback(timer.join)
        timer.start()
        stack.enter_context(pytest.raises(KeyboardInterrupt))
        gang.run(cases.sleep_for_ever, stall_s=600, deadline_s=60)

    assert not set(before) & set(pids(gang))


def _interrupt_main() -> None:
    import _thread

    _thread.interrupt_main()


def test_a_jax_config_that_cannot_travel_is_refused() -> None:
    """An option that cannot be pickled raises a TypeError that names the argument."""
    with pytest.raises(TypeError, match="jax_config cannot be pickled"):
        Gang(processes=1, jax_config={"jax_enable_x64": lambda: True})


def test_a_gang_whose_files_were_removed_starts_afresh(temp_dir: Path) -> None:
    """Where somebody has cleaned the temporary directory, the next run has fresh processes."""
    with Gang(processes=1) as gang:
        (directory,) = temp_dir.iterdir()
        shutil.rmtree(directory)
        (outcome,) = gang.run(cases.give, 1)

        assert isinstance(outcome, Returned)
        assert gang.restarts == 1
    assert not list(temp_dir.iterdir())
