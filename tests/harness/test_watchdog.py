"""The watchdog, on made-up samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harness.watchdog import Sample, Watchdog

STALL_S = 5.0
INTERVAL_S = 0.25


def first_verdict_s(
    samples_at: Callable[[float], Mapping[int, Sample]], until_s: float = 60.0
) -> float | None:
    """Feed samples every quarter of a second; when does it say hung?"""
    watchdog = Watchdog(STALL_S)
    for step in range(int(until_s / INTERVAL_S)):
        if watchdog.observe(step * INTERVAL_S, samples_at(step * INTERVAL_S)):
            return step * INTERVAL_S
    return None


def using(rank: int, cpu_s: float, demand_s: float | None = None, record_bytes: int = 0) -> Sample:
    """Make a sample of a rank with one process and one thread."""
    thread = {rank: cpu_s if demand_s is None else demand_s}
    return Sample({rank: cpu_s}, thread, record_bytes=record_bytes)


def test_still_ranks_are_hung_after_stall_s() -> None:
    """Ranks that do nothing at all are hung once stall_s has passed."""
    verdict_s = first_verdict_s(lambda _: {0: using(0, 3.0), 1: using(1, 4.0)})

    assert verdict_s == STALL_S


def test_background_cpu_is_not_progress() -> None:
    """The few per cent that an idle or polling process uses do not delay the verdict."""
    verdict_s = first_verdict_s(lambda t: {0: using(0, t * 0.08), 1: using(1, t * 0.01)})

    assert verdict_s == STALL_S


def test_many_idle_threads_are_not_progress() -> None:
    """Threads that each wait a little for a core, as all do on a loaded machine, add up to none."""
    verdict_s = first_verdict_s(
        lambda t: {0: Sample({0: t * 0.01}, dict.fromkeys(range(50), t * 0.09))}
    )

    assert verdict_s == STALL_S


def test_one_computing_rank_keeps_the_gang_from_being_hung() -> None:
    """While one unfinished rank computes, those that wait for it are not hung."""
    assert first_verdict_s(lambda t: {0: using(0, t), 1: using(1, 0.0)}) is None


def test_a_computing_rank_that_shares_its_core_with_many_is_not_hung() -> None:
    """A thread that is nearly always ready for a core computes, however little it gets."""
    assert first_verdict_s(lambda t: {0: using(0, 0.02 * t, 0.98 * t)}) is None


def test_work_that_is_handed_on_and_on_is_not_hung_on_an_overloaded_machine() -> None:
    """Where twenty threads each wait for a core in turn, a second counts for a tenth."""
    verdict_s = first_verdict_s(
        lambda t: {
            0: Sample({0: 0.05 * t}, dict.fromkeys(range(20), 0.05 * t), waited_s=0.95 * t),
            1: Sample({1: 0.0}),
        },
        until_s=120,
    )

    assert verdict_s == 10 * STALL_S


def test_a_process_that_works_for_a_rank_is_progress() -> None:
    """A rank whose own process is still is not hung while another process works for it."""
    assert first_verdict_s(lambda t: {0: Sample({10: 1.0, 11: 0.3 * t})}) is None


def test_a_process_that_has_just_come_brings_no_progress() -> None:
    """CPU seconds from before a process was first seen are not counted."""
    verdict_s = first_verdict_s(
        lambda t: {0: Sample({10: 1.0} if t < 2 else {10: 1.0, 11: 9.0}, {10: 1.0})}
    )

    assert verdict_s == STALL_S


def test_events_keep_a_sleeping_rank_from_being_hung() -> None:
    """A rank that writes an event every four seconds is slow at a stall_s of five."""
    assert first_verdict_s(lambda t: {0: using(0, 0.0, record_bytes=int(t // 4))}) is None


def test_the_clock_starts_at_the_last_event() -> None:
    """After a last event at 7 s the verdict comes stall_s later."""
    verdict_s = first_verdict_s(lambda t: {0: using(0, 0.0, record_bytes=int(min(t, 7)))})

    assert verdict_s == 7 + STALL_S


def test_the_clock_starts_when_another_rank_ends() -> None:
    """An end is progress: those still waiting get stall_s from then on."""
    verdict_s = first_verdict_s(
        lambda t: {0: using(0, t), 1: using(1, 0.0)} if t < 8 else {1: using(1, 0.0)}
    )

    assert verdict_s == 8 + STALL_S


def test_after_a_computation_the_verdict_takes_no_longer_than_stall_s() -> None:
    """A rank that computed for 10 s and then stands still is hung by 15 s."""
    verdict_s = first_verdict_s(lambda t: {0: using(0, min(t, 10.0))})

    assert verdict_s is not None
    assert 10 < verdict_s <= 10 + STALL_S


def test_a_watcher_that_was_held_up_does_not_call_it_a_hang() -> None:
    """One long gap between two samples is not stall_s of standing still."""
    watchdog = Watchdog(STALL_S)
    watchdog.observe(0.0, {0: using(0, 0.0)})

    assert not watchdog.observe(100.0, {0: using(0, 0.0)})
