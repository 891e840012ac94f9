"""The suite as a user runs it: statuses, reports, broken subjects, wrong options, Ctrl-C."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conformance.clauses import clauses
from tests.conformance.running import Ended, started

#: Each is right but for one thing that process 1 does.
SUBJECTS = """
import os
import pathlib
import jax
from conformance.reference import iter_jax_batches

def second(): return jax.process_index() == 1

def ends_early(source, **options):
    for k, batch in enumerate(iter_jax_batches(source, **options)):
        if k == 1 and second():
            return
        yield batch

def doubles(source, **options):
    for batch in iter_jax_batches(source, **options):
        yield {k: v * 2 for k, v in batch.items()} if second() else batch

def dies(source, **options):
    for k, batch in enumerate(iter_jax_batches(source, **options)):
        if k == 1 and second():
            os._exit(3)
        yield batch

def raises(source, **options):
    yield from iter_jax_batches(source, **options)
    if second():
        raise RuntimeError("the disk is gone")

def never_ends(source, **options):
    pathlib.Path(__file__).with_name("reached").touch()
    while True:
        pass
"""
#: Every interpreter that starts in a run leaves a line here, but for those that read no site.
SITE = """
import os, pathlib, sys
with (pathlib.Path(__file__).parent / "interpreters").open("a") as file:
    file.write(f"{os.getpid()}\\n")
"""
ONE = ("--processes", "2", "--devices", "1", "--sources", "memory")
EVEN = ("conformance/test_count.py", "-k", "even-padded", *ONE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the module of subjects."""
    made = tmp_path_factory.mktemp("subjects")
    (made / "subjects.py").write_text(SUBJECTS, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def broken(folder: Path) -> Iterator[dict[str, Ended]]:
    """The runs of each broken subject on one case; they wait for much, so all run at once."""
    names = ("ends_early", "doubles", "dies", "raises")
    with ExitStack() as stack:
        runs = {
            name: stack.enter_context(started(folder, *EVEN, "--subject", f"subjects:{name}"))
            for name in names
        }
        yield {name: run.wait() for name, run in runs.items()}


def test_a_right_subject_exits_with_0_and_a_whole_report(folder: Path) -> None:
    """A selection that passes says so in status, table and JSON, and leaves no process."""
    chosen = "even-padded or skew-2-first-dropped or tails-differ-neither"
    with started(folder, "conformance/test_count.py", "-k", chosen, *ONE) as run:
        ended = run.wait()

        assert run.left() == []
    assert ended.status == 0, ended.output
    assert ended.report is not None
    assert ended.report["subject"] == "jaxiter"
    assert ended.report["environment"]["processes"] == [2]
    assert ended.report["environment"]["versions"]["jax"]
    assert {i: (c["verdict"], c["counts"]) for i, c in ended.clauses.items()} == {
        "COUNT-1": ("pass", {"pass": 1}),
        "COUNT-2": ("pass", {"pass": 1}),
        "COUNT-5": ("pass", {"pass": 1}),
    }
    assert "subject: jaxiter" in ended.output
    assert "core: 3 of 3 clauses pass" in ended.output
    assert "again:" not in ended.output


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        (
            "ends_early",
            "hang",
            ["process 0: 2 batches, no end, stuck", "process 1: 1 batches, stop"],
        ),
        ("doubles", "fail", ["process 1, batch 0, column 'id', value at row 0: got", "expected"]),
        ("dies", "crash", ["process 1: 1 batches, no end, Process 1 died with exit status 3"]),
        ("raises", "fail", ["process 1 got 3 batches, then RuntimeError: the disk is gone"]),
    ],
)
def test_a_broken_subject_gets_its_verdict(
    broken: dict[str, Ended], name: str, kind: str, words: list[str]
) -> None:
    """Each way to be wrong is told apart, in words that name the process, with status 1."""
    ended = broken[name]
    (clause,) = ended.clauses.values()

    assert ended.status == 1, ended.output
    assert ended.report is not None
    assert ended.report["subject"] == f"subjects:{name}"
    assert (clause["id"], clause["verdict"], clause["counts"]) == ("COUNT-1", kind, {kind: 1})
    assert clause["smallest"]["case"] == "even-padded"
    for text in words:
        assert text in clause["smallest"]["words"]
    assert f"COUNT-1 {kind.upper()}: {clauses()['COUNT-1'].text}" in ended.output


def test_the_command_runs_that_case_again(folder: Path, broken: dict[str, Ended]) -> None:
    """The command that is offered runs one case of one topology, with the same verdict."""
    with started(folder, *broken["doubles"].again) as run:
        ended = run.wait()

    assert ended.status == 1, ended.output
    assert ended.report is not None
    assert ended.report["subject"] == "subjects:doubles"
    assert "collected 1 item\n" in ended.output
    assert ended.clauses == broken["doubles"].clauses


def test_a_stopped_run_says_what_did_not_run(folder: Path) -> None:
    """After ``-x`` the table says that the passes it shows are not those of all cases."""
    many = ("conformance/test_count.py", "-x", *ONE, "--subject", "subjects:doubles")
    with started(folder, *many) as run:
        ended = run.wait()

    assert ended.status not in (0, 6), ended.output
    assert "the run was stopped: 1 of " in ended.output
    assert "a pass below speaks of the others alone" in ended.output


def test_workers_do_not_change_the_report(folder: Path) -> None:
    """With ``-n 2`` the report is the same as without, and a gang's cases are on one worker."""
    some = ("conformance/test_count.py", "-k", "even-padded or even-dropped", *EVEN[3:])
    chosen = (*some, "--processes", "1,2", "--subject", "subjects:doubles")
    with started(folder, *chosen) as alone, started(folder, *chosen, "-n", "2", "-v") as shared:
        one, two = alone.wait(), shared.wait()

        assert shared.left() == []
    assert one.status == two.status == 1, two.output
    assert two.clauses == one.clauses
    assert one.clauses["COUNT-1"]["counts"] == {"pass": 2, "fail": 2}
    ran = re.findall(r"\[(gw\d)\].*test_count\[even-\w+-(p\d)d1-memory\]", two.output)
    assert len(set(ran)) == 2, ran
    assert len(ran) == 4


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--subject", "nobody", "'nobody' is not known: give one of ray, "),
        ("--subject", "subjects:nothing", "has no attribute 'nothing'"),
        ("--processes", "2,0", "'2,0': give whole numbers of 1 or more"),
        ("--devices", "one", "'one': give whole numbers of 1 or more"),
        ("--sources", "memroy", "'memroy'"),
        ("--subject=ray", "--sources=memory", "subject 'ray' reads only ray"),
    ],
)
def test_wrong_options_start_nothing(tmp_path: Path, option: str, value: str, words: str) -> None:
    """A wrong option is an error of usage, status 4, before any process is started."""
    (tmp_path / "subjects.py").write_text(SUBJECTS, encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    with started(tmp_path, "conformance", option, value) as run:
        ended = run.wait()

    assert ended.status == 4, ended.output
    assert words in ended.output
    assert "Traceback" not in ended.output
    assert (tmp_path / "interpreters").read_text() == f"{run.process.pid}\n"


def test_ctrl_c_leaves_no_process(folder: Path) -> None:
    """An interrupt while ranks run ends the run, and all that it started, at once."""
    with started(folder, *EVEN, "--subject", "subjects:never_ends") as run:
        deadline_s = time.monotonic() + 60
        while not (folder / "reached").exists() and time.monotonic() < deadline_s:
            assert run.process.poll() is None
            time.sleep(0.05)
        run.interrupt()
        ended = run.wait()

        assert run.left() == []
    assert ended.status == 2, ended.output
    assert "KeyboardInterrupt" in ended.output
