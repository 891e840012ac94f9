"""A run as JUnit XML: a test a case's say on a clause; a known failure is skipped. Pure."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from ci.compare import UNEXPECTED, Compared
from ci.record import Record

#: What XML 1.0 cannot hold, such as the escapes of a terminal's colours.
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(record: Record) -> str:
    """The XML as text."""
    c = record.comparison
    suite = ET.Element("testsuite", name=f"gate {record.subject}", time=f"{record.elapsed_s:.1f}")
    for item in c.items:
        _case(suite, item, record)
    for entry in c.stale:
        words = f"an entry matches nothing: {entry} ({entry.reason})"
        _bad(_test(suite, "known results", str(entry)), "failure", words)
    for clause in c.open_clauses:
        _bad(_test(suite, clause, "decided"), "error", "not decided: none of its cases ran")
    for name, words in record.lost.items():
        _bad(_test(suite, "no verdict", name), "error", words)
    if c.partial:
        _bad(_test(suite, "run", "whole"), "error", f"partial: {c.partial}")
    tests = list(suite)
    suite.set("tests", str(len(tests)))
    for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(name, str(sum(t.find(kind) is not None for t in tests)))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True)


def _case(suite: ET.Element, item: Compared, record: Record) -> None:
    r = item.result
    test = _test(suite, r.clause, f"{r.case}-{item.topology}-{r.kind}")
    test.set("time", f"{record.accounts.get(r.nodeid, {}).get('duration_s', 0.0):.3f}")
    if item.state in UNEXPECTED:
        _bad(test, "failure", f"{item.words}\n\n{r.words}\n\nagain: {record.again_of(item)}")
    elif item.state == "undecided":
        _bad(test, "error", item.words)
    elif item.state == "known":
        reason = item.entry.reason if item.entry else ""
        _bad(test, "skipped", f"known: {r.verdict}: {reason}")
    elif item.state == "left out":
        _bad(test, "skipped", r.words)


def _test(suite: ET.Element, group: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_fit(group), name=_fit(name))


def _bad(test: ET.Element, kind: str, words: str) -> None:
    found = ET.SubElement(test, kind, message=_fit(words.partition("\n")[0]))
    found.text = _fit(words)


def _fit(text: str) -> str:
    return _UNFIT.sub("?", text)
