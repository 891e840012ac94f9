"""A run as JSON, Markdown, JUnit XML and a page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from ci.drawing import LEFT, WIDTH, draw
from ci.junit import as_junit
from ci.markdown import as_markdown
from ci.page import as_page
from ci.previous import PreviousError, read
from ci.record import Record, as_json
from conformance.account import account
from conformance.model import Case, Fault, Shard, Topology
from harness import Died, Event, Hung, Raised, Returned, Undecided
from tests.ci.samples import entry, planned, record, result

ODD = "got <b>\x1b[36mbold\x1b[39m</b> & | 'x' \ud800"
CASE = Case(
    "skew",
    ("COUNT-3",),
    shards=(Shard((4, 4)), Shard((4,), fault=Fault("source", 0))),
    options={"batch_size": 4, "paddings": float("nan")},
)
EVENTS = (
    Event(0, "next", 5.0, {"epoch": 0, "k": 0}),
    Event(1, "end", 5.5, {"epoch": 0, "how": "stop"}),
)
OUTCOMES = [
    Hung(rank=0, events=EVENTS, stacks="File x.py", why="process 0 waits for process 1"),
    Died(rank=1, events=EVENTS[:1], signal="SIGKILL", output="gone"),
]


def _told(*, whole: bool) -> dict[str, Any]:
    return account(CASE, Topology(2, 1), OUTCOMES, whole=whole) | {"duration_s": 1.5}


def _run() -> Record:
    """One of each state, and a stale entry, a lost case, and a reason why it is partial."""
    results = [
        result("fail", words=ODD),
        result("hang", case="waits"),
        result("pass", case="mended"),
        result("pass", "COUNT-2", processes=4),
        result("not run", "COUNT-4", why="budget", words="left out"),
    ]
    known = [
        entry(outcome="hang", cases=["waits"]),
        entry(cases=["mended"]),
        entry("COUNT-2", cases=["gone"]),
    ]
    accounts = {results[0].nodeid: _told(whole=True), results[3].nodeid: _told(whole=False)}
    lost = {"conformance/test_x.py::x": "no gang"}
    return record(results, known, accounts=accounts, lost=lost, partial="stopped by SIGTERM")


def test_an_account_is_json_with_input_expected_and_observed() -> None:
    """All of it can be written, whatever a case holds; a case that passes is kept short."""
    whole = json.loads(json.dumps(_told(whole=True)))

    assert whole["input"]["options"] == {
        "batch_size": 4,
        "paddings": "nan",
        "synchronize_batches": True,
    }
    assert whole["input"]["shards"][1]["fault"] == {"where": "source", "at": 0}
    assert whole["expected"][0]["processes"][0]["ending"] == "error"
    assert whole["observed"][0]["events"] == [[0.0, "next", 0], [0.5, "end", None]]
    assert whole["observed"][0]["stacks"] == "File x.py"
    assert "SIGKILL" in whole["observed"][1]["why"]
    assert "observed" not in _told(whole=False)


def test_json_has_what_the_gate_found() -> None:
    """Status, words, states, what was left out, and the account of each case."""
    found = json.loads(as_json(_run()))

    assert found["gate"]["status"] == 1
    assert found["gate"]["partial"] == "stopped by SIGTERM"
    assert found["gate"]["clauses_not_decided"] == ["COUNT-4"]
    assert found["gate"]["stale_entries"] == ["COUNT-2 fail, cases gone"]
    assert {s["state"] for s in found["gate"]["states"]} >= {"known", "unexpected pass"}
    assert len(found["accounts"]) == 2


def test_junit_can_be_read_and_counts() -> None:
    """Unexpected ones are failures, known ones skipped; text that XML cannot hold is replaced."""
    (suite,) = ET.fromstring(as_junit(_run()))  # noqa: S314  it is our own

    # Two says and a stale entry; a lost case, an open clause and the partial run; two not judged.
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("3", "3", "2")
    assert suite.get("tests") == "9"
    texts = [f.text or "" for f in suite.iter("failure")]
    assert any("<b>?[36mbold" in t and "again: python -m pytest" in t for t in texts)


def test_markdown_says_all_and_nothing_of_it_takes_effect() -> None:
    """The verdict, the words and the matrix are there; text of a subject is shown as it is."""
    text = as_markdown(_run())

    assert text.startswith("## some:thing 1.0: NOT AS EXPECTED")
    assert "**Partial results: stopped by SIGTERM.**" in text
    assert "&lt;b>" in text
    assert "<b>" not in text
    assert re.search(r"\| COUNT-3 \| .*1 fail, UNEXPECTED.*\|", text)
    assert "not decided: COUNT-4" in text


class _Page(HTMLParser):
    """What a page loads, opens and links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        if tag in ("script", "link", "img", "iframe"):
            self.loads.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name == "href" and (value or "").startswith("#"):
                self.links.append((value or "")[1:])

    def handle_endtag(self, tag: str) -> None:
        """Note that it ends; each must end what began last."""
        assert self.open.pop() == tag


@pytest.mark.parametrize("render", [as_page, as_markdown])
def test_a_report_says_how_much_ran_and_of_which_commit(render: Callable[[Record], str]) -> None:
    """A report says how many of the possible cases were chosen, and what the suite was of."""
    text = render(replace(_run(), chosen=5, possible=1471))

    assert "5 of the 1,471 cases" in text
    assert "The suite is of commit 0123456789ab" in text


def test_the_page_stands_alone() -> None:
    """It loads nothing, runs no script, is well formed, and each link within it leads somewhere."""
    text = as_page(_run())
    page = _Page(text)

    assert page.loads == []
    assert page.open == []
    assert set(page.links) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert "@import" not in text
    assert "url(" not in text


def test_a_cell_opens_on_its_cases() -> None:
    """Input, expected, observed, stacks, timeline and command are in the page, in words."""
    text = as_page(_run())

    for words in ("batch_size", "File x.py", "process 0 waits for process 1", "timeline, 0.50 s"):
        assert words in text
    assert "✗ 1 fail, UNEXPECTED" in text
    assert "python -m pytest &#39;conformance/test_count.py::test_count[skew-p2d1-memory]" in text
    assert "<b>" not in text


def test_a_cell_whose_cases_were_spared_says_so() -> None:
    """Where hangs that are known were left out, the matrix does not look as if it had no case."""
    results = [result("hang"), result("pass", "COUNT-2", processes=4)]
    run = replace(record(results), spared=[planned(processes=4)])

    assert '<td class="cell">spared: known to hang</td>' in as_page(run)
    assert "| spared: known to hang |" in as_markdown(run)
    assert json.loads(as_json(run))["gate"]["cases_spared"] == ["skew-p4d1-memory"]


@pytest.mark.parametrize(
    "outcome",
    [
        Returned(rank=0, value=None),
        Raised(rank=0, type="E", mro=("E",), message="m", traceback="File y.py"),
        Hung(rank=0, stacks="", why="w"),
        Died(rank=0, exit_status=3),
        Undecided(rank=0, stacks="s", why="w"),
    ],
    ids=lambda o: type(o).__name__,
)
def test_every_outcome_can_be_shown(outcome: Returned) -> None:
    """Whatever became of a process, the page has words for it."""
    some = result("fail")
    told = account(CASE, Topology(2, 1), [outcome, outcome], whole=True)
    text = as_page(record([some], accounts={some.nodeid: told}))

    assert f"process 1 {type(outcome).__name__.lower()}" in text


def test_a_split_has_no_expectation_of_its_own() -> None:
    """A case of a split dataset is shown too, though nothing is due batch by batch."""
    some = result("fail")
    text = as_page(record([some], accounts={some.nodeid: {"input": {}, "expected": []}}))

    assert "each row of the dataset on one process" in text


def test_a_drawing_has_a_mark_for_each_event() -> None:
    """Marks stand in the order of time, one line a process; without events there is none."""
    seen = _told(whole=True)["observed"]
    drawing = draw(seen)

    assert drawing is not None
    assert [name for _, name in drawing.lines] == ["process 0 hung", "process 1 died"]
    assert [m.letter for m in drawing.marks] == ["n", "E", "n"]
    assert drawing.marks[0].x < drawing.marks[1].x
    assert drawing.marks[2].y > drawing.marks[0].y
    assert draw([{"events": [], "outcome": "hung"}]) is None


@pytest.mark.parametrize("number", [1, 3, 80, 500])
def test_letters_of_a_drawing_do_not_cover_each_other(number: int) -> None:
    """Events at one moment, at the end too, stand apart in their order, within the picture."""
    events = [[0.0, "next", 0], *([[1.0, "batch", k] for k in range(number)])]
    drawing = draw([{"events": events, "outcome": "hung"}])

    assert drawing is not None
    places = [m.x for m in drawing.marks]
    least = min(8.8, 700 / number - 0.2)
    assert all(b - a >= least for a, b in pairwise(places))
    assert LEFT <= places[0] < places[-1] <= WIDTH


def test_a_run_is_compared_with_the_one_before(tmp_path: Any) -> None:
    """Verdicts that changed are named, those that only one run has are not."""
    path = tmp_path / "report.json"
    path.write_text(as_json(_run()), encoding="utf-8")
    before = read(path, "some:thing")
    changes = before.changes(
        [result("pass"), result("hang", case="waits"), result("fail", "VALUE-1")]
    )

    assert [str(c) for c in changes] == ["COUNT-3, case skew on p2d1 (memory): fail -> pass"]
    assert before.unexpected >= {"COUNT-3", "COUNT-4"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "is no report"),
        ("[", "is no report"),
        ('{"subject": "other", "clauses": []}', "is of subject 'other'"),
        (None, "is no report"),
    ],
)
def test_what_is_no_report_is_said(tmp_path: Any, text: str | None, words: str) -> None:
    """A file that cannot be compared with is an error that names it."""
    path = tmp_path / "before.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")

    with pytest.raises(PreviousError, match=r"before\.json") as raised:
        read(path, "some:thing")

    assert words in str(raised.value)
