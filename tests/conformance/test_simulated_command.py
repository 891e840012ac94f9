"""What the command for the simulation does with files, options and ends that nobody planned."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from conformance.simulated import main
from conformance.simulated_jobs import each_apart

SMALL = ["explore", "--parts", "--ends", "drop", "--fault", "none"]
# Its only piece takes longer than any of these tests.
ENDLESS = ["explore", "--fold", "--ranks", "4", "--batches", "9", "--ends", "pad", "--fault", "die"]
LIMIT_S = 60.0
ROOT = Path(__file__).parents[2]


def names(record: Path) -> list[str]:
    """Return the names of the pieces in a record, without what they have in common."""
    lines = record.read_text("utf-8").splitlines()
    return [json.loads(line)["piece"].rpartition(", ")[2] for line in lines]


@pytest.mark.parametrize("text", ["not JSON", "[]\n", "{}\n", "\n", '{"piece": "cut\n', "\0\xff"])
def test_a_file_that_is_no_record_is_refused_and_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """The file and the line are named before anything is explored; nothing is written to it."""
    record = tmp_path / "record.jsonl"
    record.write_text(text, "latin-1")

    status = main([*SMALL, "--record", str(record)])

    out, error = capsys.readouterr()
    assert (status, out) == (2, "")
    assert error.startswith(f"{record}, line 1: not what was explored")
    assert record.read_text("latin-1") == text


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing/record.jsonl", "cannot be used as a record: No such file or directory"),
        (".", "not a file"),
        ("/dev/full", "not a file"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    """It is told before anything is explored, the result of which would be lost."""
    record = tmp_path / name

    status = main([*SMALL, "--record", str(record)])

    assert (status, *capsys.readouterr()) == (2, "", f"{record}: {why}\n")


@pytest.mark.parametrize("left", [-1, 7, 150])
def test_a_record_whose_last_line_is_cut_is_gone_on_with(tmp_path: Path, left: int) -> None:
    """What lacks its end is explored again, what lacks only its line's end is not."""
    record = tmp_path / "record.jsonl"
    options = [*SMALL, "--record", str(record)]
    main(options)
    one, two = record.read_text("utf-8").splitlines(keepends=True)
    record.write_text(one + two[:left], "utf-8")

    status = main(options)

    assert status == 0
    assert names(record) == ["piece 1 of 2", "piece 2 of 2"]


def test_what_was_cut_short_is_explored_again(tmp_path: Path) -> None:
    """A piece of which not all was looked at is not done."""
    options = [*SMALL, "--record", str(tmp_path / "record.jsonl")]

    first = main([*options, "--most-states", "1"])
    second = main(options)

    assert (first, second) == (3, 0)


@pytest.mark.parametrize(
    "options",
    [
        ["explore", "--most-states", "nan"],
        ["explore", "--most-states", "0"],
        ["explore", "--minutes", "nan"],
        ["explore", "--minutes", "-1"],
        ["draw", "--runs", "0"],
    ],
)
def test_numbers_that_ask_for_nothing_are_refused(
    capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """No command that looks at nothing says that nothing is wrong."""
    with pytest.raises(SystemExit) as exit_:
        main(options)

    assert exit_.value.code == 2
    assert f"argument {options[1]}: " in capsys.readouterr().err


def test_what_is_asked_for_twice_is_explored_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A fault, an end or a rank that is given again adds nothing."""
    main([*SMALL, "none", "--ends", "drop", "drop", "--batches", "0", "--markdown"])

    out = capsys.readouterr().out
    assert out.count("all looked at") == 1
    assert "1 cases" in out


@pytest.mark.parametrize(
    ("options", "asks"),
    [
        (
            ["--ends", "pad", "drop", "--fault", "die", "stop"],
            "8: give --ends one of pad, drop; give --fault one of die, stop; give --at one of 0, 1",
        ),
        (["--ends", "pad", "--fault", "die"], "2: give --at one of 0, 1"),
        (["--fault", "none"], "3: give --ends one of drop, pad, equal"),
    ],
)
def test_options_that_leave_several_cases_are_not_replayed(
    capsys: pytest.CaptureFixture[str], options: list[str], asks: str
) -> None:
    """No case is chosen silently: it is told which options would leave one."""
    with pytest.raises(SystemExit) as exit_:
        main(["replay", *options, "--schedule", "0 next; 1 next"])

    assert exit_.value.code == 2
    assert capsys.readouterr().err.endswith(f"replay plays one case, not {asks}\n")


def test_a_replay_names_its_case_and_what_can_come_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That nothing is wrong yet is not told as if all had come to an end."""
    options = ["--ends", "pad", "--fault", "die", "--at", "1"]
    status = main(["replay", *options, "--schedule", "0 next; 1 next"])

    lines = capsys.readouterr().out.splitlines()
    assert (status, lines[0]) == (0, "2 ranks, up to 1 batches, pad, die of rank 1")
    assert lines[-1] == (
        "  nothing is wrong so far; more can happen: 0 look, 1 dies, 1 look, 1 write"
    )


def exploring(pid: int) -> list[psutil.Process]:
    """Return those children of a process that explore."""
    children = psutil.Process(pid).children()
    return [each for each in children if "spawn_main" in "".join(each.cmdline())]


def add_one(number: int) -> int:
    """Add 1; 13 ends its process."""
    if number == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return number + 1


def test_a_process_that_is_killed_takes_only_its_own_piece() -> None:
    """All others give their results, those that begin later too."""
    results = dict(each_apart(add_one, [1, 13, 2, 3], 2))

    assert results == {1: 2, 13: None, 2: 3, 3: 4}


def stay(seconds: float) -> float:
    """Take some seconds."""
    time.sleep(seconds)
    return seconds


def test_a_result_is_there_before_those_that_take_longer() -> None:
    """What is done is not lost if what has begun earlier is ended."""
    results = each_apart(stay, [1000.0, 0.0, 0.01], 2)

    assert [thing for thing, _ in itertools.islice(results, 2)] == [0.0, 0.01]
    running = exploring(os.getpid())
    results.close()
    assert running
    assert not any(each.is_running() for each in running)


StartCommand = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start_command() -> Iterator[StartCommand]:
    """Give a function that starts the command in a process group of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "conformance.simulated", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def workers(process: subprocess.Popen[str], number: int) -> list[psutil.Process]:
    """Wait until a command has so many processes that explore, and return them."""
    deadline_s = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline_s:
        found = exploring(process.pid)
        if len(found) == number and all(each.num_threads() > 1 for each in found):
            return found
        time.sleep(0.02)
    raise AssertionError(f"not {number} processes explore after {LIMIT_S} s: {found}")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_process_is_left_of_a_command_that_is_ended(
    start_command: StartCommand, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """Those that explore end at once with the command, however that ends."""
    record = str(tmp_path / "record.jsonl")
    process = start_command(*ENDLESS, "--jobs", "2", "--record", record)
    found = workers(process, 2)
    process.send_signal(number)
    out, error = process.communicate(timeout=LIMIT_S)
    _, alive = psutil.wait_procs(found, timeout=LIMIT_S)

    assert process.returncode == status
    assert alive == []
    if number == signal.SIGINT:
        assert out == "2 of 2 pieces are left\n"
        assert error == "interrupted\n"


def test_the_rest_goes_on_when_one_that_explores_is_killed(start_command: StartCommand) -> None:
    """It is told which piece is lost, and that something is left, not that something is wrong."""
    process = start_command(*ENDLESS, "--jobs", "2")
    for each in workers(process, 2):
        each.kill()
    out, error = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 3
    assert error.count("its process was ended") == 2
    assert out == "2 of 2 pieces are left\n"


def test_two_commands_may_write_one_record(start_command: StartCommand, tmp_path: Path) -> None:
    """No line of either is lost or mixed with another."""
    record = tmp_path / "record.jsonl"
    options = ["explore", "--batches", "0", "--record", str(record), "--fault", "leave", "fail"]
    commands = [start_command(*options, "--ends", ends) for ends in ("drop", "pad")]
    for command in commands:
        command.communicate(timeout=LIMIT_S)

    assert [command.returncode for command in commands] == [0, 0]
    assert len(names(record)) == 2 * 2 * 2


def run_unread(*options: str) -> tuple[int, bytes]:
    """Run the command into a pipe that nobody reads; return its status and what it complains of."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "conformance.simulated", *options]
    try:
        ended = subprocess.run(
            command, stdout=writes, stderr=subprocess.PIPE, cwd=ROOT, timeout=LIMIT_S, check=False
        )
    finally:
        os.close(writes)
    return ended.returncode, ended.stderr


def test_what_is_explored_may_be_read_in_part(tmp_path: Path) -> None:
    """A reader that has enough, as `head` has, ends it without a word; what is done is recorded."""
    record = tmp_path / "record.jsonl"
    options = ["--batches", "0", "--ends", "drop", "--record", str(record), "--markdown"]

    assert run_unread("explore", *options) == (3, b"")
    assert len(names(record)) == 1


def test_other_results_may_be_read_in_part() -> None:
    """The status is that of what was found, whoever reads it."""
    assert run_unread("cost", "--ranks", "2") == (0, b"")
