"""The verdicts of many cases become one report: its order, its exit status, its JSON, its text."""

from __future__ import annotations

import io
import itertools
import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance.clauses import clauses
from conformance.deciding import Result, results_of
from conformance.report import ClauseReport, as_json, exit_status, show, summarise, write

COUNT = "COUNT-3"
CORE = [c.id for c in clauses().values() if c.level == "core"]
EXTENDED = [c.id for c in clauses().values() if c.level == "extended"]
#: The worst first.
VERDICTS = ["crash", "hang", "fail", "undecided", "not run", "pass"]


def _result(
    verdict: str,
    clause: str = COUNT,
    *,
    case: str = "skew",
    processes: int = 2,
    devices: int = 1,
    rows: int = 8,
    words: str = "",
) -> Result:
    node = f"conformance/test_count.py::test_count[{case}-p{processes}d{devices}-memory]"
    said = words or ("" if verdict == "pass" else f"{case} was {verdict}")
    return Result(clause, verdict, said, case, node, processes, devices, "memory", rows)


def _one(*results: Result) -> ClauseReport:
    (report,) = summarise(results, level="all", narrowed=True)
    return report


def _all_pass() -> list[Result]:
    return [_result("pass", clause) for clause in clauses()]


@pytest.mark.parametrize(("worse", "better"), list(itertools.combinations(VERDICTS, 2)))
def test_the_worst_case_decides_a_clause(worse: str, better: str) -> None:
    """Of two verdicts the worse is the clause's, in whatever order the cases ran."""
    a, b = _result(worse, case="a"), _result(better, case="b")
    expected = "skip" if worse == "not run" else worse

    assert _one(a, b).verdict == _one(b, a).verdict == expected


def test_one_pass_is_a_pass_and_one_skip_is_not() -> None:
    """A clause passes when its cases pass; a case that was not run is a skip with its reason."""
    skipped = _one(_result("not run", words="the subject has no argument paddings"))

    assert _one(_result("pass")).verdict == "pass"
    assert (skipped.verdict, skipped.reason) == ("skip", "the subject has no argument paddings")
    assert skipped.smallest is None


def test_passes_do_not_speak_for_a_case_that_was_not_run() -> None:
    """Cases that pass beside one that was not run leave the clause a skip, with the reason."""
    found = _one(_result("pass"), _result("not run", case="other", words="not run: no seed"))

    assert (found.verdict, found.reason) == ("skip", "not run: no seed")
    assert found.counts == {"pass": 1, "not run": 1}


def test_a_clause_without_a_case_is_a_skip_with_a_reason() -> None:
    """A whole run reports every clause; what nothing decided says so, and is no pass."""
    reports = summarise([_result("pass")], level="all", narrowed=False)
    verdicts = {r.clause.id: r.verdict for r in reports}

    assert list(verdicts) == list(clauses())
    assert verdicts.pop(COUNT) == "pass"
    assert set(verdicts.values()) == {"skip"}
    assert all("no case of it ran" in r.reason for r in reports if r.clause.id != COUNT)


def test_a_narrowed_run_reports_what_it_ran() -> None:
    """When the user chose cases, clauses without one are left out."""
    reports = summarise([_result("pass", "VALUE-1"), _result("fail")], level="all", narrowed=True)

    assert [r.clause.id for r in reports] == [COUNT, "VALUE-1"]


@pytest.mark.parametrize(("level", "ids"), [("core", CORE), ("extended", EXTENDED)])
def test_a_level_reports_its_clauses(level: str, ids: list[str]) -> None:
    """Only the clauses of the level asked for are reported, in the order of the document."""
    reports = summarise(_all_pass(), level=level, narrowed=False)

    assert [r.clause.id for r in reports] == ids


def test_the_smallest_case_of_the_verdict_is_shown() -> None:
    """Fewest processes, then devices, then rows, among the cases that have the clause's verdict."""
    results = [
        _result("fail", case="small", processes=1, rows=1),
        _result("hang", case="wide", processes=3, rows=1),
        _result("hang", case="deep", devices=2, rows=1),
        _result("hang", case="long", rows=9),
        _result("hang", case="least", rows=8),
    ]
    for order in itertools.permutations(results):
        smallest = _one(*order).smallest

        assert smallest is not None
        assert smallest.case == "least"


def test_the_order_in_which_cases_ran_does_not_show() -> None:
    """The same results in another order, as from several workers, make the same report."""
    results = [
        _result(v, case=f"{c}-{v}", rows=r) for v in VERDICTS for c, r in (("a", 2), ("b", 1))
    ]
    forward = as_json([_one(*results)], "reference", {})

    assert as_json([_one(*reversed(results))], "reference", {}) == forward


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        (["pass"], 0),
        (["pass", "pass"], 0),
        (["pass", "fail"], 1),
        (["pass", "hang"], 1),
        (["pass", "crash"], 1),
        (["fail", "undecided"], 1),
        (["pass", "undecided"], 6),
        (["pass", "not run"], 6),
        (["not run"], 6),
        ([], 6),
    ],
)
def test_exit_status(verdicts: list[str], status: int) -> None:
    """0 only when every clause passes, 1 when one does not, 6 when some could not be decided."""
    results = [_result(v, c) for v, c in zip(verdicts, clauses(), strict=False)]

    assert exit_status(summarise(results, level="all", narrowed=True)) == status


def test_passing_clauses_do_not_outweigh_one_that_nothing_decided() -> None:
    """A whole run in which one clause had no case exits with 6."""
    reports = summarise(_all_pass()[:-1], level="all", narrowed=False)

    assert exit_status(reports) == 6
    assert exit_status(summarise(_all_pass(), level="all", narrowed=False)) == 0


def test_json_has_subject_environment_and_clauses() -> None:
    """A program finds id, level, verdict, counts, reason, the smallest case and all cases."""
    results = [
        _result("pass", case="even"),
        _result("fail", case="skew", words="got 2, expected 3"),
    ]
    found = json.loads(as_json([_one(*results)], "some:thing", {"processes": "2"}))
    (clause,) = found.pop("clauses")
    spec = clauses()[COUNT]

    assert found == {"subject": "some:thing", "environment": {"processes": "2"}}
    assert {k: clause[k] for k in ("id", "level", "text", "source", "verdict", "reason")} == {
        "id": COUNT,
        "level": "core",
        "text": spec.text,
        "source": spec.source,
        "verdict": "fail",
        "reason": "",
    }
    assert clause["counts"] == {"pass": 1, "fail": 1}
    assert clause["smallest"]["words"] == "got 2, expected 3"
    assert [(c["case"], c["verdict"]) for c in clause["cases"]] == [
        ("even", "pass"),
        ("skew", "fail"),
    ]


def test_json_of_a_skip_has_the_reason() -> None:
    """A clause that was not decided has its reason, no smallest case, and no count."""
    reports = summarise([], level="all", narrowed=False)
    found = json.loads(as_json(reports, "reference", {}))["clauses"]

    assert [c["id"] for c in found] == list(clauses())
    assert {c["verdict"] for c in found} == {"skip"}
    assert all(c["reason"] and c["smallest"] is None and c["cases"] == [] for c in found)


def test_results_travel_in_a_test_report() -> None:
    """What a worker hangs on a test comes back as it was; other properties are passed over."""
    given = _result("fail", words="got [4, 0], expected [4]")
    properties = [("other", 1), ("conformance", json.dumps([vars(given)]))]

    assert results_of(properties) == [given]


@contextmanager
def _files_no_larger_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    """A report replaces the one before it, in a directory that is made, and nothing else stays."""
    path = tmp_path / "made" / "here" / "report.json"
    write("first", path)
    write("second", path)

    assert path.read_text(encoding="utf-8") == "second"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_report_of_before(tmp_path: Path) -> None:
    """When the disk takes half of a report, the caller learns of it and no reader sees the half."""
    path = tmp_path / "report.json"
    write("before", path)
    with _files_no_larger_than(4096), pytest.raises(OSError, match="too large"):
        write("x" * 100_000, path)

    assert path.read_text(encoding="utf-8") == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_no_first_report(tmp_path: Path) -> None:
    """When there was no report, there is none after a write that failed."""
    with _files_no_larger_than(4096), pytest.raises(OSError, match="too large"):
        write("x" * 100_000, tmp_path / "report.json")

    assert list(tmp_path.iterdir()) == []


def test_a_skip_says_that_what_could_run_passes() -> None:
    """The row of a skip whose other cases pass says so, and what kept the rest."""
    text = _shown(
        _result("pass", "COUNT-4"), _result("not run", "COUNT-4", words="no seed"), width=140
    )

    assert "SKIP" in text
    assert "pass in the 1 that could run; the others: no seed" in text


def test_the_input_of_the_smallest_case_is_shown() -> None:
    """What went into a case is one line under its name, where its account has it."""
    result = _result("fail")
    stream = io.StringIO()
    accounts = {result.nodeid: {"input_words": "batch_size=4; process 0: no rows"}}
    show([_one(result)], "", stream, 100, accounts)

    assert "  input: batch_size=4; process 0: no rows\n" in stream.getvalue()


def test_the_last_line_counts_clauses() -> None:
    """After all the cases stands once more how many clauses of each level hold."""
    text = _shown(_result("pass", "COUNT-1"), _result("hang"), _result("pass", "ERROR-4"))

    assert text.splitlines()[-1] == (
        "core: 1 of 2 clauses pass, 1 hang; extended: 1 of 1 clauses pass"
    )


def _shown(*results: Result, narrowed: bool = True, width: int = 100) -> str:
    stream = io.StringIO()
    reports = summarise(results, level="all", narrowed=narrowed)
    show(reports, "pytest '{nodeid}' --processes {processes} --devices {devices}", stream, width)
    return stream.getvalue()


def _line(text: str, start: str) -> str:
    """The cells of the row of a table, or the line, that begins so."""
    lines = (" ".join(line.strip("│ ").split()) for line in text.splitlines())
    return next(line for line in lines if line.startswith(start))


def test_the_table_keeps_core_and_extended_apart() -> None:
    """Each level has a table of its own that counts what passes."""
    text = _shown(_result("pass", "COUNT-1"), _result("fail"), _result("pass", "ERROR-4"))

    assert "core: 1 of 2 clauses pass" in text
    assert "extended: 1 of 1 clauses pass" in text
    assert text.index("COUNT-3") < text.index("extended:") < text.index("ERROR-4")


def test_the_table_has_a_row_a_clause() -> None:
    """A row shows verdict, counts and the sentence; what is not a pass is in capitals."""
    text = _shown(
        _result("pass", "COUNT-1"),
        _result("hang"),
        _result("pass", case="even"),
        _result("not run", "COUNT-4", words="the subject has no argument paddings"),
    )

    assert _line(text, "COUNT-1").startswith("COUNT-1 │ pass │ 1 pass │ Processes with the same")
    assert _line(text, "COUNT-3").startswith("COUNT-3 │ HANG │ 1 hang, 1 pass │ With `paddings`")
    assert _line(text, "COUNT-4").startswith("COUNT-4 │ SKIP │ 1 not run │ the subject has no arg")


def test_what_does_not_pass_is_told_in_words_and_can_be_run_again() -> None:
    """The smallest case of a clause is shown with its words, and a command that is one line."""
    words = "process 1 should get 3 batches: got 2\nrank 0 waits"
    text = _shown(_result("hang", processes=3, devices=2, words=words), width=60)
    node = "conformance/test_count.py::test_count[skew-p3d2-memory]"

    assert "COUNT-3 HANG: With `paddings` every process MUST" in text
    assert _line(text, "case") == "case skew, 3 processes of 2 devices, memory"
    assert "  process 1 should get 3 batches: got 2\n  rank 0 waits\n" in text
    assert f"  again: pytest '{node}' --processes 3 --devices 2\n" in text


def test_clauses_with_one_evidence_are_told_together() -> None:
    """A case that says the same of two clauses is shown once, below both of them."""
    first, second, third = CORE[:3]
    results = [_result("fail", first), _result("fail", second, words="other")]
    text = _shown(*results, _result("fail", third))

    assert text.count("skew was fail") == 1
    assert text.count("case skew, 2 processes") == 2
    heads = [line.split()[0] for line in text.splitlines() if " FAIL: " in line]
    assert heads == [first, third, second]


def test_words_are_shown_as_they_are() -> None:
    """Brackets, colons and quotes of words are no markup."""
    words = "got [4, 0] rows, expected [bold]4[/bold] :x: of 'x'"
    skipped = _result("not run", "COUNT-4", words="no [red]argument[/red]")
    text = _shown(_result("fail", words=words), skipped)

    assert f"  {words}\n" in text
    assert _line(text, "COUNT-4").endswith("no [red]argument[/red]")


def test_a_skip_shows_no_case_to_look_at() -> None:
    """A whole run that decided nothing has rows with reasons, and nothing to run again."""
    text = _shown(narrowed=False)

    assert f"core: 0 of {len(CORE)} clauses pass" in text
    assert "again:" not in text
