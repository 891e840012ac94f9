"""One verdict on a run, from outcomes and records."""

from __future__ import annotations

import faulthandler
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import Died, Event, Hung, Outcome, Raised, Returned, Undecided
from harness.stacks import fold, parse, readable
from harness.verdict import Verdict, verdict

GLOO = "UNKNOWN: Gloo AllGather failed: Connection closed by peer [127.0.0.1]:2720"
BARRIER = (
    "DEADLINE_EXCEEDED: Barrier timed out. # of tasks that reached the barrier: 1/2. The first "
    "task at the barrier: /job:jax_worker/replica:0/task:0. Some timed out task names:\n"
    "/job:jax_worker/replica:0/task:1\n"
)


def stack(*frames: str) -> str:
    """Write a main thread's stack as faulthandler does; frames are `file:line function`."""
    lines = [
        f'  File "{frame.split(":")[0]}", line {frame.split(":")[1].replace(" ", " in ")}'
        for frame in frames
    ]
    return "\n".join(["Thread 0x00007f00 (most recent call first):", *lines, ""])


IN_COLLECTIVE = stack(
    "/x/site-packages/jax/_src/array.py:631 _value",
    "/x/site-packages/jax/experimental/multihost_utils.py:134 process_allgather",
    "/home/me/train.py:30 step",
    "/home/me/train.py:12 loop",
)
ASLEEP = stack("/home/me/train.py:40 sleep_for_ever", "/home/me/train.py:12 loop")


def batches(count: int, **fields: Any) -> tuple[Event, ...]:
    """Make the record of a rank that got `count` batches; `fields` are those of the last."""
    return tuple(
        Event(k, "batch", 0.0, {"batch": k, **(fields if k == count - 1 else {})})
        for k in range(count)
    )


def returned(rank: int, count: int = 3, **fields: Any) -> Returned:
    """Make the outcome of a rank that returned after some batches."""
    return Returned(rank=rank, events=batches(count, **fields), elapsed_s=1.0)


def raised(
    rank: int, message: str, at_s: float, kind: str = "ValueError", count: int = 3
) -> Raised:
    """Make the outcome of a rank that raised."""
    return Raised(
        rank=rank,
        events=batches(count),
        elapsed_s=at_s + 2.0,  # known later than it happened
        type=kind,
        mro=(kind, "Exception"),
        message=message,
        traceback=f"Traceback (most recent call last):\n  here\n{kind}: {message}\n",
        t_s=100.0 + at_s,
        start_s=100.0,
    )


def hung(rank: int, stacks: str = IN_COLLECTIVE, count: int = 3, **more: Any) -> Hung:
    """Make the outcome of a rank that hung."""
    events = batches(count)
    return Hung(rank=rank, events=events, elapsed_s=6.0, stacks=stacks, why="", **more)


def late(rank: int, stacks: str = IN_COLLECTIVE, *, busy: bool = False) -> Undecided:
    """Make the outcome of a rank that was undecided."""
    events = batches(3)
    return Undecided(rank=rank, events=events, elapsed_s=9, stacks=stacks, why="", busy=busy)


def died(rank: int, at_s: float, after: int | None = None) -> Died:
    """Make the outcome of a rank that was killed."""
    return Died(rank=rank, events=batches(3), elapsed_s=at_s, signal="SIGKILL", after=after)


@pytest.mark.parametrize(
    ("outcomes", "word", "ranks", "batch"),
    [
        ([returned(0), returned(1)], "ok", (), None),
        ([returned(0, 0), returned(1, 0)], "ok", (), None),
        ([hung(0), raised(1, "no rows", 0.5)], "one-sided error", (1,), 2),
        ([raised(0, "a", 0.5), raised(1, "b", 0.6)], "common error", (0, 1), 2),
        ([raised(0, "a", 0.5, count=2), raised(1, "b", 0.6)], "one-sided error", (0, 1), 1),
        ([raised(0, "a", 0.6, "KeyError"), raised(1, "b", 0.5)], "one-sided error", (1,), 2),
        ([returned(0), raised(1, "a", 0.5)], "one-sided error", (1,), 2),
        ([hung(0), died(1, 0.5)], "died", (1,), 2),
        ([raised(0, GLOO, 0.4), died(1, 0.5)], "died", (1,), 2),
        ([died(0, 0.7, after=1), died(1, 0.5)], "died", (1,), 2),
        ([raised(0, "peer has left", 0.4), died(1, 0.5)], "died", (1,), 2),
        ([raised(0, "no rows", 0.4), died(1, 5.0)], "one-sided error", (0,), 2),
        ([hung(0), hung(1, stopped=True, stopped_s=0.3)], "stopped", (1,), 2),
        ([raised(0, GLOO, 0.1), hung(1, stopped=True, stopped_s=0.3)], "stopped", (1,), 2),
        ([hung(0), hung(1, ASLEEP)], "missing rank", (1,), 2),
        ([hung(0), hung(1, count=2), hung(2)], "missing rank", (1,), 2),
        ([hung(0), returned(1)], "missing rank", (1,), 2),
        ([raised(0, BARRIER, 1.0, "XlaRuntimeError"), hung(1)], "missing rank", (1,), 2),
        ([hung(0), returned(1, 2)], "count mismatch", (1,), 2),
        ([returned(0), returned(1, 1), returned(2, 2)], "count mismatch", (1, 2), 1),
        ([hung(0), hung(1)], "undecided", (), 2),
        ([late(0), late(1)], "undecided", (), 2),
        ([late(0), late(1, ASLEEP, busy=True)], "slow", (1,), 2),
        ([late(0, busy=True), late(1, ASLEEP, busy=True)], "slow", (1,), 2),
    ],
)
def test_the_word_is_that_of_the_cause(
    outcomes: list[Outcome], word: str, ranks: tuple[int, ...], batch: int | None
) -> None:
    """The word, the ranks at fault and the batch are those of what happened first."""
    found = verdict(outcomes)

    assert (found.word, found.ranks, found.batch) == (word, ranks, batch)
    assert found.ok == (word == "ok")
    assert found.show().startswith(f"{word}: ")


@pytest.mark.parametrize(
    ("field", "word"), [("shapes", "shape mismatch"), ("dtypes", "dtype mismatch")]
)
def test_batches_that_differ_are_the_cause(field: str, word: str) -> None:
    """The first batch whose shapes or dtypes differ is named with each rank's, though all hang."""
    good, bad = {field: {"x": [8, 3], "y": [8]}}, {field: {"x": [8, 5], "y": [8]}}
    outcomes = [
        Hung(rank=rank, events=batches(3, **own), stacks=IN_COLLECTIVE, why="")
        for rank, own in enumerate([good, bad, good])
    ]

    found = verdict(outcomes)

    assert (found.word, found.ranks, found.batch) == (word, (1,), 2)
    assert found.because == "column 'x': ranks 0, 2 [8, 3]; rank 1 [8, 5]"


@pytest.mark.parametrize(("at_s", "word"), [(0.5, "one-sided error"), (2.5, "shape mismatch")])
def test_of_a_mismatch_and_an_error_the_earlier_is_the_cause(at_s: float, word: str) -> None:
    """An error after the batches that differ is what they led to; one before is its own."""
    event = Event(0, "batch", 101.5, {"batch": 0, "shapes": {"x": [8, 3]}})
    odd = Event(0, "batch", 101.0, {"batch": 0, "shapes": {"x": [8, 5]}})
    failed = replace(raised(0, "sizes differ", at_s), events=(event,))
    outcomes: list[Outcome] = [failed, replace(hung(1), events=(odd,), start_s=100.0)]

    assert verdict(outcomes).word == word


def test_the_first_error_of_many_is_reported() -> None:
    """Of eight ranks two raise in their loader: the first and its traceback are shown first."""
    outcomes: list[Outcome] = [hung(rank) for rank in range(8)]
    outcomes[4] = raised(4, "cannot open file 4", 1.7, "OSError")
    outcomes[5] = raised(5, "cannot open file 5", 1.2, "OSError")

    found = verdict(outcomes)

    assert (found.word, found.ranks) == ("one-sided error", (4, 5))
    assert found.first is not None
    assert found.first.rank == 5
    assert found.first.at_s == pytest.approx(1.2)
    assert [failure.rank for failure in found.later] == [4]
    assert found.show().splitlines()[:3] == [
        "one-sided error: ranks 4, 5 at batch 2: OSError: cannot open file 5",
        "first failure: rank 5, 1.20 s at batch 2: OSError: cannot open file 5",
        "  | Traceback (most recent call last):",
    ]


@pytest.mark.parametrize("kind", ["error", "end"])
def test_an_error_that_was_caught_and_recorded_counts(kind: str) -> None:
    """A rank that records its error and returns is at fault, not the one that waits for it."""
    fields = {"type": "ValueError", "message": "no rows", "traceback": "Traceback ..."}
    event = Event(3, kind, 0.5, {**fields, "batch": 2})
    outcomes = [hung(0), Returned(rank=1, events=(*batches(2), event))]

    found = verdict(outcomes)

    assert (found.word, found.ranks, found.batch) == ("one-sided error", (1,), 2)
    assert "ValueError: no rows" in found.headline


def test_one_error_recorded_by_all_is_common() -> None:
    """Where all recorded an error of one kind after as many batches, none is at fault alone."""
    end = Event(3, "end", 0.5, {"type": "UnevenError", "message": "process 1 has fewer"})

    def outcomes(*counts: int) -> list[Outcome]:
        return [Returned(rank=r, events=(*batches(n), end)) for r, n in enumerate(counts)]

    assert verdict(outcomes(2, 2)).word == "common error"
    assert verdict(outcomes(2, 1)).word == "one-sided error"


def test_errors_that_follow_can_be_named() -> None:
    """An error that code under test raises because of a peer is never the cause."""
    outcomes = [raised(0, "rank 1 is silent", 0.2, "mine.PeerError"), raised(1, "no rows", 0.3)]

    found = verdict(outcomes, follows=["mine.PeerError"])

    assert found.ranks == (1,)
    assert [failure.rank for failure in found.later] == [0]


def test_epochs_are_counted_apart() -> None:
    """Counts are compared in each epoch; one that is still under way is not short."""

    def record(*counts: int) -> tuple[Event, ...]:
        return tuple(
            Event(0, "batch", 0.0, {"batch": k, "epoch": epoch})
            for epoch, count in enumerate(counts)
            for k in range(count)
        )

    even = [Returned(rank=rank, events=record(2, 3)) for rank in range(2)]
    odd = [even[0], Returned(rank=1, events=record(2, 1))]
    ended = Event(0, "end", 0.0, {"epoch": 0})
    under_way: list[Outcome] = [
        Hung(rank=0, events=record(3), stacks=IN_COLLECTIVE, why=""),
        Hung(rank=1, events=(*record(2), ended), stacks=IN_COLLECTIVE, why=""),
    ]

    assert verdict(even).ok
    assert verdict(odd).because == "epoch 1: batches of each: rank 0 3; rank 1 1"
    assert (verdict(under_way).word, verdict(under_way).ranks) == ("count mismatch", (1,))


def test_the_screen_names_cause_waits_and_stacks() -> None:
    """The cause comes first, then who waits where, then the stacks, own frames first."""
    lines = verdict([hung(0), raised(1, "no rows", 0.5), hung(2)]).show().splitlines()

    wait = "ranks 0, 2 wait at batch 2 in a collective at train.py:30 in step"
    assert lines[0] == "one-sided error: rank 1 at batch 2: ValueError: no rows"
    assert wait in lines
    stacks = lines[lines.index("stacks of the ranks that had not ended, own frames first:") :]
    assert stacks[1:6] == [
        "ranks 0, 2:",
        "  main thread",
        "    train.py:30 in step",
        "    train.py:12 in loop",
        "    in it: array.py:631 in _value (1 frames between)",
    ]
    assert len(lines) < 40


def test_real_stacks_are_folded() -> None:
    """Threads that are the same are shown once; those of other people's code in one line."""
    ready = threading.Barrier(4)
    release = threading.Event()

    def wait() -> None:
        ready.wait()
        release.wait()

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait()
    with tempfile.TemporaryFile("w+") as file:
        # What each waits in is the same only once all wait.
        while True:
            file.truncate(0)
            file.seek(0)
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            text = file.read()
            waiting = [t for t in parse(text) if t.own and t.own[0].function == "wait"]
            if len({t.frames for t in waiting}) == 1 and len(waiting) == 3:
                break
    release.set()
    for thread in threads:
        thread.join()

    folded = fold({0: text, 1: text, 2: "no stacks: the process did not answer"})
    assert folded.startswith("ranks 0, 1:\n  main thread\n    test_verdict.py:")
    assert "  3 threads\n    test_verdict.py:" in folded
    assert folded.endswith("rank 2:\n  no stacks: the process did not answer")


def test_of_very_many_threads_none_is_taken_for_the_main_thread() -> None:
    """Where the main thread is left out, as of more than 100, it is said."""
    release = threading.Event()
    threads = [threading.Thread(target=release.wait) for _ in range(110)]
    for thread in threads:
        thread.start()
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        text = file.read()
    release.set()
    for thread in threads:
        thread.join()

    assert len(parse(text)) == 100
    assert not any(thread.main for thread in parse(text))
    for shown in (fold({0: text}), readable(text, all_frames=False)):
        assert shown.splitlines()[-1].strip().startswith("and more threads, the main thread among")


def test_a_verdict_needs_no_records() -> None:
    """Ranks that recorded nothing get a verdict too, without a batch."""
    found: Verdict = verdict([Hung(rank=0, stacks="", why=""), Died(rank=1, signal="SIGKILL")])

    assert (found.word, found.ranks, found.batch) == ("died", (1,), None)
    assert found.headline == "died: rank 1: by SIGKILL"


def test_the_rank_whose_error_has_a_cause_is_told_first() -> None:
    """Of errors of one kind, the one raised from another is shown, not the one that repeats it."""
    told = raised(0, "process 1: damaged", 0.5)
    caused = (
        "OSError: damaged\n\nThe above exception was the direct cause of the following exception:"
    )
    root = replace(raised(1, "process 1: damaged", 0.6), traceback=caused)
    found = verdict([told, root])

    assert found.first is not None
    assert (found.first.rank, found.later[0].rank) == (1, 0)


def test_of_a_long_traceback_its_first_cause_is_shown() -> None:
    """The line that raised first is there, as is what came of it; lines between are left out."""
    chained = [
        "Traceback (most recent call last):",
        *[f"  library {k}" for k in range(20)],
        "  rows.py, line 14",
        "OSError: damaged",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        *[f"  iterator {k}" for k in range(20)],
        "SourceError: batch 2",
    ]
    shown = verdict([replace(raised(0, "batch 2", 0.5), traceback="\n".join(chained))]).show()

    assert "| OSError: damaged" in shown
    assert "| SourceError: batch 2" in shown
    assert shown.count("lines before") == 2
    assert shown.count("  | ") == 18


def test_a_death_is_told_in_the_words_of_the_runtime() -> None:
    """A process that wrote why it aborts has these words below the first failure."""
    output = "step 1\nterminate called after\n  what():  20 vs 16. Sizes differ?\n"

    text = verdict([returned(0), replace(died(1, 0.5), signal="SIGABRT", output=output)]).show()

    assert "died by SIGABRT\n  | what():  20 vs 16. Sizes differ?\n" in text
    assert "step 1" not in text


def test_a_rank_that_sleeps_is_missing_and_not_those_that_returned(tmp_path: Path) -> None:
    """Where nobody waits for peers, who has returned is at no fault."""
    source = tmp_path / "train.py"
    source.write_text("import time\ntime.sleep(60)\n")

    found = verdict([returned(0), hung(1, stack(f"{source}:2 wait_for_disk"))])

    assert (found.word, found.ranks) == ("missing rank", (1,))
    assert found.because == "is asleep at train.py:2 in wait_for_disk (time.sleep(60))"


@pytest.mark.parametrize(
    ("stands", "one", "many"),
    [
        ("/home/me/train.py:40 load", "is at train.py:40 in load", "are at train.py:40 in load"),
        (
            "/usr/lib/python3.11/queue.py:171 get;/home/me/train.py:40 load",
            "waits for another thread at train.py:40 in load",
            "wait for another thread at train.py:40 in load",
        ),
        ("", "is at a place that is not known", "are at a place that is not known"),
    ],
)
def test_a_verdict_is_a_sentence_for_one_rank_and_for_many(
    stands: str, one: str, many: str
) -> None:
    """Its verb is that of the place where the missing ranks are, and of their number."""
    away = stack(*stands.split(";")) if stands else "no stacks: the process did not answer"

    headlines = [
        verdict([hung(0), *(hung(rank, away) for rank in range(1, count))]).headline
        for count in (2, 3)
    ]

    assert headlines == [
        f"missing rank: rank 1 at batch 2: {one}",
        f"missing rank: ranks 1, 2 at batch 2: {many}",
    ]


def test_missing_ranks_that_are_apart_are_said_to_be() -> None:
    """The headline says that they are at different places, and not nothing."""
    apart = [stack(f"/home/me/train.py:{line} load") for line in (40, 50)]

    found = verdict([hung(0), hung(1, apart[0]), hung(2, apart[1])])

    assert found.headline == "missing rank: ranks 1, 2 at batch 2: are at different places"


def test_ranks_that_did_not_come_to_a_barrier_are_many() -> None:
    """The words agree with the number of the ranks that the service names."""
    error = BARRIER + "/job:jax_worker/replica:0/task:2\n"

    found = verdict([raised(0, error, 1.0, "XlaRuntimeError"), hung(1), hung(2)])

    assert found.ranks == (1, 2)
    assert found.because == "did not come to where the others waited for them"


def test_an_error_without_a_text_is_named_alone() -> None:
    """No colon stands after its type."""
    headline = verdict([hung(0), raised(1, "", 0.5, "StopIteration")]).headline

    assert headline == "one-sided error: rank 1 at batch 2: StopIteration"


def test_a_fault_that_was_survived_is_named() -> None:
    """All returned, and the verdict says what was injected, by time."""
    stop = Event(9, "fault", 0.5, {"fault": "stop", "point": "batch", "batch": 2, "for_s": 0.5})
    delay = Event(9, "fault", 0.2, {"fault": "delay", "point": "batch", "for_s": 3})
    outcomes = [
        Returned(rank=k, events=(*batches(3), event)) for k, event in enumerate((stop, delay))
    ]

    found = verdict(outcomes)

    assert found.faults == ("delay of rank 1 for 3 s", "stop of rank 0 at batch 2 for 0.5 s")
    assert found.headline == f"ok: all 2 returned in spite of {', '.join(found.faults)}"


def test_a_screen_tells_what_was_injected() -> None:
    """A verdict that is not clean has the faults in a line of their own."""
    leave = Event(9, "fault", 0.5, {"fault": "leave", "point": "batch", "batch": 2})

    text = verdict([returned(0), Returned(rank=1, events=(*batches(2), leave))]).show()

    assert "injected: leave of rank 1 at batch 2\n" in text
