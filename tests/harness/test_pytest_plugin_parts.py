"""Parts of the pytest plugin that start no gang: slots, texts of failures, stacks."""

from __future__ import annotations

import faulthandler
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import Died, Event, Hung, Outcome, Raised, Returned, Undecided
from harness.pytest_plugin import (
    FaultMissed,
    GangDied,
    GangHung,
    GangUndecided,
    RanksDiffer,
    RanksRaised,
    check,
)
from harness.pytest_plugin.on_rank import this
from harness.pytest_plugin.pool import Pool
from harness.pytest_plugin.slots import Slots, SlotsError
from harness.pytest_plugin.topologies import Limits, Topology
from harness.screen import CAUSED
from harness.stacks import readable

LIMIT_S = 20.0


def raised(rank: int, type_: str = "ValueError", message: str = "no rows", **more: Any) -> Raised:
    """A rank that raised."""
    return Raised(rank=rank, type=type_, mro=(type_,), message=message, **more)


def hung(rank: int) -> Hung:
    """A rank that hangs."""
    return Hung(rank=rank, stacks="no stacks", why="rank 0 waits for rank 1")


def test_values_of_ranks_that_returned() -> None:
    """One a rank."""
    assert check([Returned(rank=0, value=5), Returned(rank=1, value=6)]) == [5, 6]


@pytest.mark.parametrize("type_", ["ValueError", "Skipped", "_pytest.outcomes.Exit"])
def test_what_is_told_can_be_sent(type_: str) -> None:
    """A worker of xdist ends for a text that UTF-8 has no bytes for, as half a file's name has."""
    outcomes = [raised(rank, type_, "no \udcff", traceback="no \udcff") for rank in range(2)]
    with pytest.raises(BaseException, match=r"no \\udcff") as caught:
        check(outcomes)

    assert str(caught.value).encode()


@pytest.mark.parametrize(
    ("outcomes", "kind", "text"),
    [
        ([Returned(rank=0), raised(1)], RanksRaised, "rank 1 raised ValueError: no rows; rank 0 r"),
        ([raised(0), raised(1)], RanksRaised, "ranks 0, 1 raised ValueError: no rows"),
        ([hung(0), raised(1)], GangHung, "rank 0 waits for rank 1"),
        (
            [raised(0), Died(rank=1, signal="SIGKILL"), hung(2)],
            GangDied,
            "Rank 1 died by SIGKILL",
        ),
        (
            [Died(rank=0, signal="SIGABRT", after=1), Died(rank=1, exit_status=3)],
            GangDied,
            "Rank 1 died with exit status 3",
        ),
        ([Undecided(rank=0, stacks="", why="the deadline")], GangUndecided, "the deadline"),
        ([Returned(rank=0), raised(1, "Skipped")], RanksDiffer, "rank 0 returned; rank 1 s"),
        (
            [raised(0, "Skipped"), raised(1)],
            RanksRaised,
            "rank 1 raised ValueError: no rows; rank 0 skipped",
        ),
        (
            [raised(0, "_pytest.outcomes.XFailed"), Returned(rank=1)],
            RanksDiffer,
            "rank 0 failed as expected; rank 1 returned",
        ),
    ],
)
def test_a_failure_has_a_kind_and_a_headline(
    outcomes: list[Outcome], kind: type[BaseException], text: str
) -> None:
    """The worst that befell a rank gives the kind; the first line says what is the cause."""
    with pytest.raises(kind) as error:
        check(outcomes)

    # A run that did not end by itself has its verdict before.
    assert text in "".join(str(error.value).splitlines()[:2])


def test_skips_of_all_ranks_with_different_reasons() -> None:
    """The test is skipped for all of them."""
    with pytest.raises(pytest.skip.Exception, match="no rows; no file"):
        check([raised(0, "Skipped"), raised(1, "unittest.case.SkipTest", "no file")])


def test_an_exit_of_any_rank_ends_the_session() -> None:
    """As `pytest.exit` does in the parent."""
    with pytest.raises(pytest.exit.Exception, match="rank 1: enough"):
        check([Returned(rank=0), raised(1, "_pytest.outcomes.Exit", "enough")])


def test_many_different_errors_make_a_short_headline() -> None:
    """Three are named, the others counted."""
    with pytest.raises(RanksRaised) as error:
        check([raised(rank, message=f"row {rank}") for rank in range(8)])

    assert str(error.value).splitlines()[0] == (
        "rank 0 raised ValueError: row 0; rank 1 raised ValueError: row 1; "
        "rank 2 raised ValueError: row 2; and 5 more"
    )


def test_a_fixture_of_the_ranks_is_not_known_in_the_parent() -> None:
    """To use it there is an error that says where it can be used."""
    with pytest.raises(RuntimeError, match=r"fixture 'this' has its value on the ranks alone: .ra"):
        this().rank  # noqa: B018 - what raises


def test_records_that_differ_are_told_before_the_errors() -> None:
    """Where ranks raise because their batches have different shapes, the first line says which."""
    outcomes = [
        raised(rank, f"assert {rows} == 9", events=(batch,), t_s=1.0)
        for rank, rows in enumerate((8, 10))
        for batch in [Event(0, "batch", 0.5, {"batch": 0, "shapes": {"x": [rows, 2]}})]
    ]

    with pytest.raises(RanksRaised) as caught:
        check(outcomes)

    first = str(caught.value).splitlines()[0]
    assert first == "shape mismatch: rank 1 at batch 0: column 'x': rank 0 [8, 2]; rank 1 [10, 2]"


def test_a_death_is_told_in_the_words_of_the_runtime() -> None:
    """Beside the signal there is what the process wrote of its end, and no more of its output."""
    output = "step 1\nterminate called after\n  what():  20 vs 16. Sizes differ?\n"

    with pytest.raises(GangDied) as caught:
        check([Died(rank=0, signal="SIGABRT", output=output), Returned(rank=1)])

    lines = str(caught.value).splitlines()
    assert lines[-1] == "what():  20 vs 16. Sizes differ?"
    assert "step 1" not in lines


def fault(rank: int) -> Event:
    """The record of a fault."""
    return Event(4, "fault", 0.5, {"fault": "kill", "point": "batch", "batch": rank + 1})


def test_a_run_without_its_fault_fails() -> None:
    """Though all ranks returned, and another fault has happened."""
    missed = Event(5, "missed", 0.6, {"fault": "rank 1 at batch 9: kill (...)"})
    outcomes = [Returned(rank=0, events=(fault(0),)), Returned(rank=1, events=(missed,))]

    with pytest.raises(FaultMissed) as caught:
        check(outcomes)

    assert str(caught.value).splitlines() == [
        "not injected: rank 1 at batch 9: kill (...)",
        "injected: kill of rank 0 at batch 1",
        "All ranks returned without it: the run says nothing of such a fault.",
    ]


def test_a_death_is_told_once_and_what_follows_in_few_lines() -> None:
    """The first death is in the headline alone; of an error that it caused own frames are shown."""
    library = '  File "/x/site-packages/jax/_src/tree.py", line 9, in map\n    return f(x)\n'
    own = '  File "/home/me/train.py", line 30, in step\n    y = gather(x)\n'
    injecting = '  File "/x/harness/faults_inside.py", line 9, in injected\n    fn()\n'
    gloo = "UNKNOWN: Gloo AllGather failed: Connection closed by peer [127.0.0.1]:2720"
    trace = f"Traceback (most recent call last):\n{injecting}{own}{library * 5}ValueError: {gloo}\n"
    outcomes = [raised(0, message=gloo, traceback=trace), Died(rank=1, signal="SIGKILL")]
    outcomes[1] = replace(outcomes[1], events=(fault(1),))

    with pytest.raises(GangDied) as caught:
        check(outcomes)

    assert str(caught.value).splitlines() == [
        "died: rank 1 at batch 2: by SIGKILL",
        "injected: kill of rank 1 at batch 2",
        f"{outcomes[1].describe()}",
        "",
        "----- rank 0 -----",
        "Traceback (most recent call last):",
        *own.splitlines(),
        "  ... 5 frames of libraries (-v)",
        f"ValueError: {gloo}",
    ]
    with pytest.raises(GangDied, match="site-packages"):
        check(outcomes, verbose=True)


def test_an_error_that_follows_nothing_is_shown_whole() -> None:
    """Where no other rank has failed by itself, it may be the cause."""
    library = '  File "/x/site-packages/jax/_src/tree.py", line 9, in map\n    return f(x)\n'
    trace = f"Traceback (most recent call last):\n{library}ValueError: Gloo failed\n"

    with pytest.raises(RanksRaised, match="site-packages"):
        check([raised(rank, message="Gloo failed", traceback=trace) for rank in range(2)])


def test_the_error_that_others_follow_is_shown_first() -> None:
    """Of errors of one kind the one that was raised from another comes first, whatever its rank."""
    cause = "OSError: damaged\n\n" + CAUSED
    outcomes = [raised(0, message="process 1: damaged"), raised(1, message="process 1: damaged")]
    outcomes[0] = replace(outcomes[0], traceback="told")
    outcomes[1] = replace(outcomes[1], traceback=cause)

    with pytest.raises(RanksRaised) as failed:
        check(outcomes)
    text = str(failed.value)
    assert text.index("----- rank 1 -----") < text.index("----- rank 0 -----")


def test_stacks_have_the_main_thread_and_own_frames_first() -> None:
    """A thread that stands in a library says where, in one line."""
    ready, done = threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        done.wait(LIMIT_S)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        assert ready.wait(LIMIT_S)
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            stacks = file.read()
    finally:
        done.set()
        thread.join()
    lines = readable(stacks, all_frames=False).splitlines()

    assert lines[0] == "main thread, its own frames, innermost first:"
    assert lines[1].endswith("in test_stacks_have_the_main_thread_and_own_frames_first")
    assert lines[2].strip() == "faulthandler.dump_traceback(file, all_threads=True)"
    assert any("thread" in line and "own frames" in line for line in lines[3:])
    assert "0x" not in "\n".join(lines)


def test_no_stacks_stay_as_they_are() -> None:
    """The reason for their absence is shown."""
    assert readable("no stacks: it did not answer", all_frames=False).startswith("no stacks: it")


def test_slots_are_bounded(tmp_path: Path) -> None:
    """Who asks for more than is free waits, says so to others, and gives up after a limit."""
    mine, theirs = Slots(tmp_path), Slots(tmp_path)
    held = mine.take(2, 3)

    assert not mine.someone_waits()
    with pytest.raises(SlotsError, match="a gang of 2 processes waited too long"):
        theirs.take(2, 3, wait_limit_s=0.1)
    theirs.give(theirs.take(1, 3, wait_limit_s=LIMIT_S))
    mine.give(held)
    theirs.give(theirs.take(3, 3, wait_limit_s=LIMIT_S))


def test_who_waits_for_slots_gets_them(tmp_path: Path) -> None:
    """As soon as the other, who sees that someone waits, gives them back."""
    mine, theirs = Slots(tmp_path), Slots(tmp_path)
    held = mine.take(2, 2)
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.extend(theirs.take(2, 2, LIMIT_S)))
    thread.start()
    waiting = threading.Event()
    while not mine.someone_waits() and thread.is_alive():
        waiting.wait(0.01)
    mine.give(held)
    thread.join(LIMIT_S)

    assert len(got) == 2
    theirs.give(got)


def test_slots_of_a_dead_process_are_free(tmp_path: Path) -> None:
    """However it ended."""
    program = (
        "import os, pathlib, sys; from harness.pytest_plugin.slots import Slots; "
        "Slots(pathlib.Path(sys.argv[1])).take(2, 2); os._exit(1)"
    )
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=root, check=False)
    slots = Slots(tmp_path)

    slots.give(slots.take(2, 2, wait_limit_s=0.5))


def test_a_gang_beyond_the_bound_is_refused() -> None:
    """Nothing is started; the text says what to do."""
    pool = Pool(2, None)
    with (
        pytest.raises(ValueError, match="3 processes is more than gang_max_processes=2 allows"),
        pool.lend(Topology(3, 1, "local"), Limits(1.0, None)),
    ):
        pass
