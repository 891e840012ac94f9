"""The gate as CI runs it: statuses, files, budgets, signals, and nothing left behind."""

from __future__ import annotations

import io
import json
import signal
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ci.suite import Followed, read_lines
from tests.conformance.running import Run, started

GATE = (sys.executable, "-m", "ci.gate")
#: One topology, in memory, one case of each clause.
SMALL = ("--profile", "fast", "--processes", "2", "--devices", "1", "--sources", "memory")
CORE = (*SMALL, "--subject", "reference", "--level", "core")
SPINS = """
import pathlib

def forever(source, **options):
    pathlib.Path(__file__).with_name("reached").touch()
    while True:
        pass
"""


def _spinning(folder: Path) -> tuple[str, ...]:
    (folder / "spins.py").write_text(SPINS, encoding="utf-8")
    return (*SMALL, "--subject", "spins:forever")


def _until_it_spins(folder: Path, run: Run) -> None:
    deadline_s = time.monotonic() + 90
    while not (folder / "reached").exists():
        assert run.process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_two_runs_at_once_are_as_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each exits with 0, writes its four files and the job's summary, and leaves no process."""
    summary = tmp_path / "job.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    with started(tmp_path, *CORE, program=GATE) as run:
        monkeypatch.delenv("GITHUB_STEP_SUMMARY")
        with started(tmp_path, *CORE, program=GATE) as other:
            ended, beside = run.wait(), other.wait()

            assert run.left() + other.left() == []
    assert (ended.status, beside.status) == (0, 0), ended.output + beside.output
    assert ended.report is not None
    assert beside.report is not None
    assert ended.report["gate"]["counts"] == beside.report["gate"]["counts"]
    assert ended.report["gate"]["verdict"] == "as expected"
    assert set(ended.report["gate"]["counts"]) == {"pass"}
    assert sorted(p.name for p in run.report.iterdir()) == [
        "index.html",
        "junit.xml",
        "report.json",
        "summary.md",
    ]
    (suite,) = ET.parse(run.report / "junit.xml").getroot()  # noqa: S314  it is our own
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert summary.read_text() == (run.report / "summary.md").read_text()
    assert "without a case for these sources and topologies: " in ended.output
    assert "ERROR-2" in ended.report["gate"]["clauses_without_a_case"]
    assert "found python" in ended.output


def test_what_a_budget_leaves_out_is_undecided(tmp_path: Path) -> None:
    """A budget that is spent at once leaves clauses open: status 3, and each case is named."""
    with started(tmp_path, *CORE, "--budget-minutes", "0.001", program=GATE) as run:
        ended = run.wait()

    assert ended.status == 3, ended.output
    assert ended.report is not None
    gate = ended.report["gate"]
    assert len(gate["cases_left_out"]) > 20
    assert "COUNT-3" in gate["clauses_not_decided"]
    assert f"left out, {len(gate['cases_left_out'])} cases: " in ended.output


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_leaves_partial_results_and_no_process(tmp_path: Path, name: str) -> None:
    """The gate ends what it started, and says that what it has seen is not all."""
    with started(tmp_path, *_spinning(tmp_path), program=GATE) as run:
        _until_it_spins(tmp_path, run)
        run.process.send_signal(signal.Signals[name])
        ended = run.wait()

        assert run.left() == []
    assert ended.status == 2, ended.output
    assert ended.report is not None
    assert ended.report["gate"]["partial"] == f"the gate was stopped by {name}"
    assert f"partial: the gate was stopped by {name}" in ended.output


def test_a_gate_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """What it had started ends with it, files too; the report that is there says it is partial."""
    with started(tmp_path, *_spinning(tmp_path), program=GATE) as run:
        _until_it_spins(tmp_path, run)
        (scratch,) = {path.parents[1] for path in run.paths_after("--chosen")}
        assert scratch.is_dir()
        run.process.kill()
        ended = run.wait()

        assert run.left() == []
        assert not scratch.exists()
    assert ended.status == -signal.SIGKILL
    assert ended.report is not None
    assert ended.report["gate"]["partial"] == "the run is not over"


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--ray-version", "2.1.0", "--ray-version 2.1.0, but ray "),
        ("--jax-version", "0.1.0", "--jax-version 0.1.0, but jax "),
        ("--subject", "nobody", "subject 'nobody' is not known"),
        ("--previous", "nothing.json", "is no report of the suite or the gate"),
        ("--processes", "2,0", "give whole numbers of 1 or more"),
        ("--budget-minutes", "0", "give minutes, more than 0"),
        ("--sources", "disk", "'disk' is none of memory, ray"),
        ("--known", "BROKEN", "broken-1.toml: cannot be read"),
    ],
)
def test_what_cannot_run_says_why(tmp_path: Path, option: str, value: str, words: str) -> None:
    """A wrong wish exits with 2 and one reason, before anything is started."""
    (tmp_path / "broken-1.toml").write_text("subject =")
    given = str(tmp_path) if value == "BROKEN" else value
    with started(tmp_path, *CORE, option, given, program=GATE) as run:
        ended = run.wait()

    assert ended.status == 2, ended.output
    assert words in ended.output
    assert "Traceback" not in ended.output
    assert not run.report.exists() or not any(run.report.iterdir())


def test_a_journal_that_was_cut_short_is_read_to_its_last_whole_line() -> None:
    """What was noted before a kill counts; half a line does not."""
    lines = [
        {"starts": "a"},
        {"ends": "a", "results": [], "account": {"duration_s": 1.0}},
        {"lost": "b", "words": "no gang"},
    ]
    text = "\n".join(json.dumps(line) for line in lines) + '\n{"starts": "c'
    seen = Followed()
    rest = read_lines(io.StringIO(text), "", seen)

    assert rest == '{"starts": "c'
    assert (seen.running, list(seen.accounts), seen.lost) == ({}, ["a"], {"b": "no gang"})
