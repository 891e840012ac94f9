"""Schedules of faults as data, and what each fault does inside a rank."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import Gang, Raised, Returned, rank
from harness.faults import (
    Cut,
    Delay,
    Exit,
    Fault,
    Kill,
    Leave,
    Raise,
    Schedule,
    Starve,
    Stop,
    each,
    point,
    shrink,
)
from harness.verdict import verdict

ALL = Schedule(
    (
        Raise(rank=0, batch=1, error="ValueError", message="no rows"),
        Delay(rank=1, batch=2, for_s=0.5),
        Stop(rank=0, phase="step"),
        Starve(rank=3, batch=0, share=0.2, for_s=1.0),
        Cut(rank=2, batch=4),
        Kill(rank=1, batch=3),
        Exit(rank=1, batch=3, status=7),
        Leave(rank=2, batch=5),
    ),
    seed=11,
)

seeds = st.integers(0, 10**6)


def test_a_schedule_is_printed_a_line_a_fault() -> None:
    """Seed first, then who, where, what."""
    assert str(ALL).splitlines() == [
        "faults of seed 11:",
        "  rank 0 at batch 1: raise (error='ValueError', message='no rows')",
        "  rank 1 at batch 2: delay (for_s=0.5)",
        "  rank 0 at step: stop (for_s=None)",
        "  rank 3 at batch 0: starve (for_s=1.0, share=0.2)",
        "  rank 2 at batch 4: cut (for_s=None)",
        "  rank 1 at batch 3: kill",
        "  rank 1 at batch 3: exit (status=7)",
        "  rank 2 at batch 5: leave",
    ]
    assert str(Schedule()) == "faults: none"


def test_every_kind_travels_as_json() -> None:
    """What was written comes back equal, each fault of its own class."""
    assert Schedule.from_json(ALL.to_json()) == ALL


@given(seeds)
def test_a_seed_always_gives_the_same_schedule(seed: int) -> None:
    """The same seed gives the same faults, within ranks and batches, and they travel."""
    schedule = Schedule.random(seed, processes=3, batches=5)

    assert schedule == Schedule.random(seed, processes=3, batches=5)
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert 1 <= len(schedule.faults) <= 3
    assert all(f.rank < 3 and f.batch in range(5) for f in schedule.faults)


def test_seeds_reach_every_kind() -> None:
    """A few hundred seeds have each kind of fault in them."""
    found = {f.kind for seed in range(200) for f in Schedule.random(seed, 2, 3).faults}

    assert found == {fault.kind for fault in ALL.faults}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Kill(rank=-1), "Kill: rank must be a whole number from 0, not -1"),
        (lambda: Kill(rank=0, batch=1.5), "Kill: batch must be a whole number from 0, not 1.5"),  # type: ignore[arg-type]
        (lambda: Kill(rank=0, phase=""), "Kill: phase must be a name"),
        (lambda: Delay(rank=0, for_s=0), "Delay: for_s must be more than 0 or None, not 0"),
        (lambda: Starve(rank=0, share=0.9), "Starve: share must be from 0.02 to 0.5, not 0.9"),
        (lambda: Exit(rank=0, status=256), "Exit: status must be from 0 to 255, not 256"),
        (lambda: Raise(rank=0, error="Nonsense"), "must name an exception of Python, not 'Nons"),
        (lambda: Raise(rank=0, error="SystemExit"), "must name an exception of Python"),
        (lambda: Schedule.from_json("[1]"), "not a schedule"),
        (lambda: Schedule.from_json("{"), "not a schedule"),
        (lambda: Schedule.from_json('{"faults": [{"kind": "melt"}]}'), "fault 0: kind must be"),
        (lambda: Schedule.from_json('{"faults": [{"kind": "kill"}]}'), "fault 0: .*'rank'"),
    ],
)
def test_what_is_no_fault_is_refused(make: Callable[[], object], text: str) -> None:
    """A wrong value raises a ValueError that names fault, field, rule and value."""
    with pytest.raises(ValueError, match=text):
        make()


@given(seeds, st.integers(0, 7))
def test_shrinking_ends_at_what_is_needed(seed: int, batch: int) -> None:
    """Of many faults the one that matters is left, at the first batch where it still fails."""
    noise = Schedule.random(seed, processes=4, batches=8, most=6).faults
    culprit = Stop(rank=2, batch=batch, for_s=0.4)
    schedule = Schedule((*noise, culprit), seed)

    def still_fails(candidate: Schedule) -> bool:
        return any(
            isinstance(f, Stop) and f.rank >= 1 and (f.batch or 0) >= min(batch, 3)
            for f in candidate.faults
        )

    (left,) = shrink(schedule, still_fails).faults

    assert isinstance(left, Stop)
    assert (left.rank, left.batch) == (1, min(batch, 3))
    assert left.for_s == 0.1


def test_shrinking_keeps_faults_that_only_fail_together() -> None:
    """Two faults that are both needed stay, and nothing is asked twice."""
    schedule = Schedule((*ALL.faults, Kill(rank=0, batch=0)))
    asked: list[tuple[Fault, ...]] = []

    def still_fails(candidate: Schedule) -> bool:
        asked.append(candidate.faults)
        return {"kill", "leave"} <= {fault.kind for fault in candidate.faults}

    left = shrink(schedule, still_fails)

    assert [(f.kind, f.rank, f.batch) for f in left.faults] == [("leave", 0, 0), ("kill", 0, 0)]
    assert len(set(asked)) == len(asked)


def test_what_does_not_fail_is_not_shrunk() -> None:
    """A schedule that does not fail at all raises a ValueError that shows it."""
    with pytest.raises(ValueError, match=r"it does not fail(.|\n)*rank 1 at batch 3: kill"):
        shrink(ALL, lambda _: False)


def test_a_point_without_a_schedule_is_nothing() -> None:
    """Outside of a schedule nothing happens, and iteration gives all."""
    assert not point("batch", 0)
    assert list(each("abc")) == ["a", "b", "c"]


def _letters() -> tuple[list[str], bool]:
    """Iterate, reach a point of another phase, and say whether that asks to leave."""
    return list(each("abcd")), point("end")


@pytest.fixture(scope="module")
def one() -> Any:
    """One process, which is enough for faults that need no peer."""
    with Gang(processes=1) as gang:
        yield gang


def test_a_fault_happens_once_at_its_point(one: Gang) -> None:
    """Faults of other batches do not happen; each is in the record with its point."""
    schedule = Schedule(
        (Leave(rank=0, batch=2), Leave(rank=0, batch=9), Leave(rank=0, phase="end"))
    )
    (with_faults,) = one.run(schedule.around(_letters))
    (without,) = one.run(_letters)

    assert isinstance(with_faults, Returned)
    assert with_faults.value == (["a", "b"], True)
    assert [(e.kind, e.fields["fault"], e.fields.get("point")) for e in with_faults.events] == [
        ("fault", "leave", "batch"),
        ("fault", "leave", "end"),
        (
            "missed",
            "rank 0 at batch 9: leave (the last that it came to was batch 2)",
            None,
        ),
    ]
    assert isinstance(without, Returned)
    assert without.value == (["a", "b", "c", "d"], False)


def test_a_fault_that_no_rank_came_to_is_told(one: Gang) -> None:
    """A run that is well because its fault never happened says so, and how far it came."""
    faults = (
        Kill(rank=0, batch=99),
        Kill(rank=0, phase="decode"),
        Delay(rank=0, batch=1, for_s=0.1),
    )

    found = verdict(one.run(Schedule(faults).around(_letters)))

    assert found.missed == (
        "rank 0 at batch 99: kill (the last that it came to was batch 4)",
        "rank 0 at decode: kill (it came to no point 'decode': only to batch, end)",
    )
    assert f"not injected: {'; '.join(found.missed)}\n" in found.show()


def test_a_fault_of_no_rank_is_refused_at_the_start(one: Gang) -> None:
    """Where the gang does not have its rank, nothing runs, and the error names fault and gang."""
    (outcome,) = one.run(Schedule((Kill(rank=5, batch=1),)).around(_letters))

    assert isinstance(outcome, Raised)
    assert outcome.events == ()
    assert outcome.type == "ValueError"
    assert outcome.message == (
        "no rank 5 in a gang of 1, so this fault can never happen: rank 5 at batch 1: kill. "
        "Give a rank from 0 to 0"
    )


def test_what_is_around_a_function_stands_for_it() -> None:
    """It is a function with the name and arguments of the one inside, as pytest needs of a test."""

    def test_it(this: object) -> None:
        """Do nothing."""

    around = Schedule().around(test_it)

    assert inspect.isfunction(around)
    assert around.__name__ == "test_it"
    assert list(inspect.signature(around).parameters) == ["this"]


def test_a_raised_fault_is_what_python_raises(one: Gang) -> None:
    """The error has the class and the text that were asked for, and the caller's traceback."""
    schedule = Schedule((Raise(rank=0, error="OSError", message="cannot read shard 3"),))
    (outcome,) = one.run(schedule.around(_letters))

    assert isinstance(outcome, Raised)
    assert (outcome.type, outcome.message) == ("OSError", "cannot read shard 3")
    assert "in _letters" in outcome.traceback
    assert outcome.notes == (
        "injected fault: rank 0 at batch: raise (error='OSError', message='cannot read shard 3')",
    )


def test_a_raised_fault_is_shown_without_what_raised_it(one: Gang) -> None:
    """The innermost frame that is shown is the one that came to the point, and no harness is."""
    text = verdict(one.run(Schedule((Raise(rank=0),)).around(_letters))).show()

    frames = [line for line in text.splitlines() if line.startswith("  |   File ")]
    assert len(frames) == 1
    assert frames[0].endswith("in _letters")


def _stands_still_s() -> float:
    """Reach a point; gives how long that took."""
    start_s = time.monotonic()
    point("batch", 0)
    return time.monotonic() - start_s


@pytest.mark.parametrize("kind", [Stop, Delay])
def test_what_lasts_ends_by_itself(one: Gang, kind: type[Stop] | type[Delay]) -> None:
    """A stopped or delayed rank goes on after its time, and the run is right."""
    (outcome,) = one.run(Schedule((kind(rank=0, for_s=0.3),)).around(_stands_still_s))

    assert isinstance(outcome, Returned)
    assert outcome.value >= 0.3
    assert verdict([outcome]).ok


def _share() -> float:
    """Compute for a while; gives the share of a core that this thread got."""
    point("batch", 0)
    wall_s, own_s = time.monotonic(), time.thread_time()
    while time.monotonic() < wall_s + 0.5:
        pass
    return (time.thread_time() - own_s) / (time.monotonic() - wall_s)


def test_a_starved_rank_gets_little_and_is_free_after(one: Gang) -> None:
    """The share is about what was asked; then all cores are there again and no process is left."""
    (starved,) = one.run(Schedule((Starve(rank=0, share=0.1),)).around(_share))
    (after,) = one.run(_cores_and_children)

    assert isinstance(starved, Returned)
    assert starved.value < 0.3
    assert starved.left_threads == ()
    assert isinstance(after, Returned)
    assert after.value == (os.sched_getaffinity(0), [])


def _cores_and_children() -> tuple[set[int], list[int]]:
    from harness.processes import children

    return os.sched_getaffinity(0), children(os.getpid())


def _set_and_get() -> tuple[str, float]:
    """Write to the coordination service and read back; gives that and how long it took."""
    from jax._src.distributed import global_state

    client: Any = global_state.client
    point("batch", 0)
    start_s = time.monotonic()
    key = f"key-{start_s}"
    client.key_value_set(key, "value")
    value = client.blocking_key_value_get(key, 10_000)
    rank.record("got", value=value)
    return value, time.monotonic() - start_s


def test_a_cut_rank_loses_nothing_when_the_cut_ends(one: Gang) -> None:
    """What it asked of the coordination service meanwhile is answered once it is over."""
    (outcome,) = one.run(Schedule((Cut(rank=0, for_s=0.4),)).around(_set_and_get))
    (after,) = one.run(_set_and_get)

    assert isinstance(outcome, Returned), outcome.describe()
    assert outcome.value[0] == "value"
    assert outcome.value[1] > 0.2
    assert outcome.left_threads == ()
    assert isinstance(after, Returned)
    assert one.restarts == 0
