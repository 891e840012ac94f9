"""Where the suite's processes live: what may be asked for, and what hosts are sent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci.tpu import ROOT, command
from conformance.hosting import HostingError, code_of, parse
from conformance.model import Kind
from conformance.subjects import find
from tests.conformance.running import LIMIT_S, PYTEST


@pytest.mark.parametrize("text", ["local", "ray", "jaxtrainer", "tpu:4x4:v6e:1", "fake:2x2x2:v4:2"])
def test_a_hosting_reads_back_as_it_was_given(text: str) -> None:
    """So that the command that runs a case again can name it."""
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "kinds", "words"),
    [
        ("local", ["memory"], "local"),
        ("local", ["ray"], "local, as Ray actors"),
        ("local", ["memory", "ray"], "local, as Ray actors for sources on Ray"),
        ("jaxtrainer", ["ray"], "jaxtrainer"),
        ("fake:2x2x2:v4:2", ["memory", "ray"], "fake:2x2x2:v4:2"),
    ],
)
def test_the_header_says_where_processes_are(text: str, kinds: list[Kind], words: str) -> None:
    """With sources on Ray, the ranks of `local` are Ray's actors."""
    assert parse(text).describe(kinds) == words


def test_the_header_of_a_run_knows_what_the_subject_reads() -> None:
    """Ray's own iterator reads sources on Ray alone, so all ranks are actors."""
    command = [*PYTEST, "conformance", "--subject=ray", "--collect-only"]

    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=ROOT
    )

    assert "subject: ray; backend: local, as Ray actors\n" in ran.stdout, ran.stdout[:2000]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cloud", "give local, ray, jaxtrainer, tpu:TOPOLOGY"),
        ("tpu", "give local, ray, jaxtrainer, tpu:TOPOLOGY"),
        ("tpu:4x4:v6e:many", "give local, ray, jaxtrainer, tpu:TOPOLOGY"),
        ("tpu:5x5:v6e:1", "topology '5x5' is none that v6e has"),
    ],
)
def test_another_hosting_is_refused(text: str, words: str) -> None:
    """The error has the option, its value, and what may be given."""
    with pytest.raises(HostingError, match=words) as caught:
        parse(text)

    assert str(caught.value).startswith(f"--backend {text!r}: ")


def test_hosts_are_sent_the_suite_and_the_subject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages of a checkout and a module of the user's own, but nothing that is installed."""
    (tmp_path / "mine.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    names = [Path(each).name for each in code_of(find("jaxiter"))]
    assert names == ["conformance", "jaxiter"]
    assert [Path(each).name for each in code_of(find("jaxiter-installed"))] == names
    assert code_of(find("mine:iterate"))[1:] == [str(tmp_path / "mine.py")]
    assert [Path(each).name for each in code_of(find("numpy:asarray"))] == ["conformance"]


def test_the_command_on_slices_passes_other_options_on() -> None:
    """What it does not know is pytest's."""
    given = ["--fake", "--slices", "2", "--short", "-k", "count"]

    assert command(given)[:3] == [sys.executable, "-m", "pytest"]
    assert command(given)[4:] == [
        *("--subject", "jaxiter", "--backend", "fake:4x4:v6e:2", "--short", "-k", "count")
    ]


def test_an_unusable_option_exits_as_in_the_suite(capsys: pytest.CaptureFixture[str]) -> None:
    """With 4, and words; 2 is for a cluster that lacks the slice."""
    with pytest.raises(SystemExit) as caught:
        command(["--slices", "two"])

    assert caught.value.code == 4
    assert "argument --slices: invalid int value: 'two'" in capsys.readouterr().err


def test_the_suite_takes_the_place_of_the_command_for_slices(tmp_path: Path) -> None:
    """A signal to the command is one to the suite, which then ends what it has started."""
    (tmp_path / "says_pid.py").write_text("import os\nprint(os.getpid())\nraise SystemExit(0)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "ci.tpu", "--fake", "-p", "says_pid"],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        text=True,
    )
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()

    assert (process.returncode, int(out)) == (0, process.pid)
