"""The sentence that says who waits for whom."""

from __future__ import annotations

import faulthandler
import tempfile

import pytest

from harness.diagnosis import View, place_of, who_waits_for_whom
from harness.records import Event
from harness.stacks import parse, with_called

BATCH = Event(12, "batch", 1.0, {"k": 2, "rows": [1, 2]})


def test_it_names_who_waits_and_who_raised() -> None:
    """The one that raised comes before the one that waits, each with its last event."""
    why = who_waits_for_whom(
        [View(1, "waits", BATCH, "in a collective"), View(0, "raised ValueError", BATCH)]
    )

    assert why == (
        "rank 0 raised ValueError after event #12 'batch' (k=2); "
        "rank 1 waits in a collective after event #12 'batch' (k=2)"
    )


def test_an_error_that_ended_an_epoch_is_named() -> None:
    """A rank that returned since an error ended its epoch is said to have ended with it."""
    end = Event(13, "end", 1.0, {"how": "error", "type": "IndexError"})

    assert who_waits_for_whom([View(1, "returned", end)]).startswith(
        "rank 1 ended with IndexError after event #13 'end'"
    )


def test_ranks_that_are_alike_are_named_together() -> None:
    """Ranks of one state, place and last event share a clause; the stopped one comes first."""
    why = who_waits_for_whom(
        [View(0, "waits", None), View(1, "waits", None), View(2, "stopped", None)]
    )

    assert why == (
        "rank 2 is stopped (SIGSTOP) before its first event; "
        "ranks 0, 1 wait before their first event"
    )


def test_a_place_is_the_innermost_line_of_the_caller() -> None:
    """A real stack gives file, line, function and source of the frame outside libraries."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        place = place_of(file.read())

    assert place.startswith("at test_diagnosis.py:")
    assert "test_a_place_is_the_innermost_line" in place
    assert "faulthandler.dump_traceback(" in place


def test_no_stack_is_no_place() -> None:
    """Where there is no stack, there is no place."""
    assert place_of("no stacks: the process did not answer") == ""


HEAD = "Thread 0x00007f (most recent call first):\n"
STEP = '  File "/home/a/ray/read_value.py", line 3 in assert_equal\n'
JAX = '  File "/x/site-packages/jax/_src/pjit.py", line 3 in _call\n'


@pytest.mark.parametrize(
    ("stacks", "wait"),
    [
        (HEAD + STEP, ""),
        (HEAD + JAX + STEP, "in a collective"),
        ("Called: 3 jaxlib._jax.PjitFunction\n" + HEAD + STEP, "in a collective"),
        ("Called: 3 jaxlib._jax.ArrayImpl.block_until_ready\n" + HEAD + STEP, "in a collective"),
        ("Called: 3 ?.wait_at_barrier\n" + HEAD + JAX + STEP, "in the coordination service"),
        ("Called: 3 time.sleep\n" + HEAD + STEP, "asleep"),
        ("Called: 3 _thread.lock.acquire\n" + HEAD + STEP, "for another thread"),
        ("Called: 3 socket.socket.recv\n" + HEAD + STEP, ""),
        (HEAD + '  File "/x/site-packages/ray/_raylet.py", line 3 in get\n' + STEP, "in Ray"),
    ],
)
def test_what_it_waits_in_is_told_by_libraries_and_by_what_is_called(
    stacks: str, wait: str
) -> None:
    """Names, paths and comments of the caller say nothing, whatever they are."""
    assert place_of(stacks) == f"{wait} at read_value.py:3 in assert_equal".strip()


def test_who_tells_what_is_called_is_no_thread_of_the_rank() -> None:
    """The thread that answers is left out of stacks; what it says goes to the main thread alone."""
    teller = HEAD + '  File "/home/a/harness/called.py", line 9 in answer\n'
    threads = parse(with_called(teller + HEAD + STEP + HEAD + STEP, "3 old\n3 time.sleep\n"))

    assert [(thread.main, thread.called) for thread in threads] == [
        (False, ""),
        (True, "time.sleep"),
    ]


def test_what_is_called_at_another_line_is_of_another_moment() -> None:
    """A thread that has moved on since is not said to wait in what it has called before."""
    assert place_of("Called: 9 time.sleep\n" + HEAD + STEP).startswith("at read_value.py:3")
