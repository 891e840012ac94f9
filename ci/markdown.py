"""The summary of a run as Markdown, as a page of a CI job shows it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ci.matrix import cells, columns
from ci.record import Record

#: A summary is for reading; all of it is in report.json and on the page.
_SHOWN = 30


def as_markdown(record: Record) -> str:
    """The verdict, what is not as expected, what was left out, and the matrix of clauses."""
    c = record.comparison
    versions = ", ".join(f"{n} {v}" for n, v in record.environment["versions"].items())
    lines = [
        f"## {record.headline}",
        "",
        f"Exit status {int(c.status)}: {c.status.words}.",
        f"{record.scope}, {record.elapsed_s:.0f} s.",
        f"{versions}. The suite is of {record.environment['commit']}.",
        "",
        f"Compared with: {record.known}.",
        "",
    ]
    if c.partial:
        lines += [f"**Partial results: {c.partial}.**", ""]
    lines += _section("What is not as expected, or not decided", c.words)
    if record.before:
        lines += _section(
            f"Changed since the run before ({record.before})",
            [str(change) for change in record.changes] or ["nothing"],
        )
    lines += _matrix(record)
    lines += _folded("Cases left out: not run in this time", c.left_out)
    spared = "Cases spared: known to hang, as another case of their clauses that ran"
    lines += _folded(spared, [p.id for p in record.spared])
    outside = [f"{x.id}: {x.text}" for x in record.outside]
    lines += _folded("Clauses without a case for these sources and topologies", outside)
    lines += ["", "Run it again:", "", "```", record.command, "```", ""]
    return "\n".join(lines)


def _section(title: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    more = len(items) - _SHOWN
    shown = [f"- {_escaped(i)}" for i in items[:_SHOWN]]
    shown += [f"- and {more} more, in report.json"] if more > 0 else []
    return [f"### {title}: {len(items)}", "", *shown, ""]


def _folded(title: str, items: Sequence[str]) -> list[str]:
    if not items:
        return []
    listed = [f"- {_escaped(i)}" for i in items]
    head = f"<details><summary>{title} ({len(items)})</summary>"
    return [head, "", *listed, "", "</details>", ""]


def _matrix(record: Record) -> list[str]:
    heads = columns(record)
    if not heads:
        return []
    lines = [_row(["clause", *(h.title for h in heads)]), _row(["---"] * (len(heads) + 1))]
    for clause, row in cells(record):
        words = [cell if isinstance(cell, str) else cell.words for cell in row]
        lines.append(_row([clause.id, *words]))
    return ["### Clauses", "", *lines, ""]


def _row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(_escaped(t) for t in texts)} |"


def _escaped(text: str) -> str:
    """Text as it is: no table, tag or emphasis of it takes effect."""
    for mark in ("\\", "|", "<", "*", "_", "`"):
        text = text.replace(mark, "\\" + mark if mark != "<" else "&lt;")
    return text.replace("\n", " ")
