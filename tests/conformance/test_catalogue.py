"""The catalogue's entries fit together, its command line says what it did, its gangs are real."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from conformance import catalogue_run
from conformance.catalogue import ENTRIES, Entry, UnknownReportError, find, link
from conformance.catalogue_harness import HARNESS_ENTRIES, HarnessEntry
from conformance.catalogue_run import Finding, finding, kind_for, main, status, table
from conformance.judge import Verdict
from conformance.model import Topology
from conformance.subjects import NAMED

PAGE = Path(__file__).parents[2] / "docs" / "catalogue.md"


def test_a_report_is_in_one_entry_alone() -> None:
    """No report names two entries, so that a name selects one."""
    reports = Counter(report for entry in ENTRIES for report in entry.reports)
    reports.update(entry.name for entry in HARNESS_ENTRIES)

    assert [report for report, count in reports.items() if count > 1] == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_an_entry_has_links_and_a_case_of_its_name(entry: Entry) -> None:
    """Each of its reports has a link and finds it; its case has its name on any topology."""
    for report in entry.reports:
        assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/issues/\d+", link(report))
        assert find(report) is entry
    for topology in (entry.topology, Topology(4, 2)):
        assert entry.case(topology).name == entry.name


def test_the_page_tells_every_entry() -> None:
    """docs/catalogue.md has a row for each entry, with its clauses, and links to each report."""
    page = PAGE.read_text(encoding="utf-8")
    for entry in ENTRIES:
        for report in entry.reports:
            assert f"[{report}]({link(report)})" in page
        for clause in entry.case(entry.topology).clauses:
            assert re.search(rf"^\| \[{entry.name}\].*\b{clause}\b", page, re.MULTILINE), clause
    for own in HARNESS_ENTRIES:
        assert f"[{own.name}](" in page


def test_unknown_reports_are_refused_with_those_that_there_are() -> None:
    """The error lists the names to choose from."""
    with pytest.raises(UnknownReportError, match=r"'ray-1'; there are pytorch-38174, .*jax-37830"):
        find("ray-1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ray-1"], "no regression is named 'ray-1'"),
        (["ray-1"], "xla-2749"),
        (["ray-1"], "marin-6954-harness"),
        (["--subject", "rya"], "subject 'rya' is not known"),
        (["--sources", "disk"], "--sources 'disk': give memory, ray or both"),
    ],
)
def test_options_that_cannot_be_used_start_nothing(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status is 4, and the message says which."""
    assert main(arguments) == 4
    assert words in capsys.readouterr().out


def test_the_list_may_be_read_in_part() -> None:
    """A reader that has gone, as `head` has, is no error and costs no word."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "conformance.catalogue", "--list"]
    try:
        ended = subprocess.run(
            command, stdout=writes, stderr=subprocess.PIPE, timeout=120, check=False
        )
    finally:
        os.close(writes)

    assert (ended.returncode, ended.stderr) == (0, b"")


def test_the_worst_clause_is_the_verdict() -> None:
    """A cell names the clauses that do not pass, and says if they are this project's own."""
    case = find("ray-19644").case(Topology(2, 1))
    both = {"EMPTY-1": Verdict("hang", "stuck"), "EMPTY-2": Verdict("fail", "no rows")}
    own = {"EMPTY-1": Verdict("pass"), "EMPTY-2": Verdict("fail", "no rows")}
    subject = NAMED["ray"]

    assert finding(case, subject, "ray", both).shown() == "HANG EMPTY-1, EMPTY-2"
    assert finding(case, subject, "ray", both).words == "stuck"
    assert finding(case, subject, "ray", own).shown() == "FAIL EMPTY-2 (extended)"


def test_a_case_runs_on_the_first_source_that_it_and_the_subject_have() -> None:
    """Memory is preferred where it is asked for first; Ray where nothing else reads it."""
    case = find("ray-66085").case(Topology(2, 1))
    plain = find("bergson-227").case(Topology(2, 1))

    assert kind_for(case, NAMED["jaxiter"], ["memory", "ray"]) == "ray"
    assert kind_for(case, NAMED["jaxiter"], ["memory"]) is None
    assert kind_for(plain, NAMED["jaxiter"], ["memory", "ray"]) == "memory"
    assert kind_for(plain, NAMED["ray"], ["memory", "ray"]) == "ray"


def test_the_exit_status_is_that_of_the_suite() -> None:
    """0 for passes alone, 1 for a failure, 6 for what was not decided."""
    passed = Finding("a", "s", "memory", "pass")
    hung = Finding("a", "s", "memory", "hang", ("COUNT-1",))
    none = Finding("b", "s", "", "not run")

    assert [status([passed]), status([passed, hung, none]), status([passed, none])] == [0, 1, 6]


def test_the_table_has_a_row_a_report_and_a_column_a_subject() -> None:
    """Reports are in the catalogue's order, whatever order they ran in."""
    found = [
        Finding("ray-19644", "ray", "ray", "hang", ("EMPTY-1",)),
        Finding("pymarlin-80", "ray", "ray", "pass"),
    ]
    shown = table(found)

    assert [c.header for c in shown.columns] == ["report", "clauses", "ray"]
    assert list(shown.columns[0].cells) == ["pymarlin-80", "ray-19644"]
    assert list(shown.columns[2].cells) == ["pass", "HANG EMPTY-1"]


@pytest.mark.parametrize("entry", HARNESS_ENTRIES, ids=lambda e: e.name)
def test_what_was_reported_of_the_harness_does_not_happen(entry: HarnessEntry) -> None:
    """A real gang does what the report says, and is told rightly."""
    assert entry.run() == ""


def test_by_name_on_a_real_gang(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One entry, by another of its names, on the reference: its row, its file, its status."""
    written = tmp_path / "found.json"
    given = ["xla-2749", "--subject", "reference", "--sources", "memory", "--json", str(written)]

    assert catalogue_run.main(given) == 0
    assert re.search(r"pymarlin-80 +│ COUNT-4 +│ pass", capsys.readouterr().out)
    (found,) = json.loads(written.read_text())
    assert (found["report"], found["verdict"]) == ("pymarlin-80", "pass")
