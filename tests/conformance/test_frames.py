"""Where the code under test was, from a traceback, stacks, or what a process wrote as it died."""

from __future__ import annotations

from conformance.frames import died_at, raised_at, stands_at

LIBRARIES = "/env/lib/python3.12/site-packages"
TRACEBACK = f"""Traceback (most recent call last):
  File "/home/me/conformance/observe.py", line 160, in _one_epoch
    batch = next(iterator)
  File "{LIBRARIES}/ray/data/util/jax_util.py", line 313, in _yield
    batch = local_batches[i]
            ~~~~~~~~~~~~~^^^
IndexError: list index out of range
"""
STACK = f"""Thread 0x00007f8923491b80 (most recent call first):
  File "{LIBRARIES}/jax/_src/array.py", line 631 in _value
  File "{LIBRARIES}/ray/data/util/jax_util.py", line 282 in _yield
  File "/home/me/conformance/observe.py", line 158 in _one_epoch
  File "/home/me/harness/rank.py", line 117 in execute
"""
IDLE = """Thread 0x00007f8900000001 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 324 in wait
  File "/env/lib/python3.12/site-packages/ray/data/util.py", line 103 in _acquire_slot
"""


def test_an_error_was_raised_in_the_code_under_test() -> None:
    """The frame of the subject is named with its line, and none of the suite's own."""
    assert raised_at(TRACEBACK) == "jax_util.py:313 in _yield (batch = local_batches[i])"


def test_of_an_error_raised_from_another_the_other_is_placed() -> None:
    """What was raised first says where the trouble is."""
    cause = TRACEBACK.replace("jax_util.py", "reader.py")
    told = "\nThe above exception was the direct cause of the following exception:\n\n"

    assert raised_at(cause + told + TRACEBACK).startswith("reader.py:313")
    assert raised_at("") == ""


def test_a_process_stands_below_the_loop_of_the_suite() -> None:
    """Of a library the innermost frame is named, then those of the code under test."""
    assert stands_at(STACK) == "array.py:631 in _value, from jax_util.py:282 in _yield"


def test_a_process_in_the_suites_own_step_stands_nowhere() -> None:
    """A computation of the suite is no place of the code under test."""
    step = STACK.replace(
        f"{LIBRARIES}/ray/data/util/jax_util.py", "/home/me/conformance/observe.py"
    )

    assert stands_at(step) == ""


def test_a_death_is_told_in_the_words_of_the_runtime() -> None:
    """The lines that say why come first, then where it was."""
    output = f"loaded\n  what():  [enforce fail] 12 vs 4\nFatal Python error: Aborted\n\n{STACK}"

    assert died_at(output) == [
        "what():  [enforce fail] 12 vs 4",
        "Fatal Python error: Aborted",
        "at array.py:631 in _value, from jax_util.py:282 in _yield",
    ]
    assert died_at("no word of it") == []


def test_a_death_in_a_thread_of_a_library_is_placed_where_the_loop_stands() -> None:
    """A thread without Python frames has no block; the first block is of the newest thread."""
    output = f"Fatal Python error: Aborted\n\n{IDLE}\n{STACK}"

    assert died_at(output)[-1] == "at array.py:631 in _value, from jax_util.py:282 in _yield"


def test_a_death_outside_the_loop_is_placed_in_the_main_thread() -> None:
    """The main thread is the last."""
    main = STACK.replace("/home/me/conformance/observe.py", "/home/me/train.py")

    assert died_at(f"Fatal Python error: Aborted\n\n{IDLE}\n{main}")[-1].startswith("at array.py")


def test_a_death_in_a_thread_of_python_is_placed_there() -> None:
    """That thread is the current one, wherever its block stands."""
    output = f"Fatal Python error: Aborted\n\n{STACK}\nCurrent t{IDLE.removeprefix('T')}\n{STACK}"

    assert died_at(output)[-1] == "at threading.py:324 in wait, from util.py:103 in _acquire_slot"
