"""A run as one self-contained page: no network, and no script. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from ci.compare import UNEXPECTED, Compared
from ci.drawing import LEFT, WIDTH, draw
from ci.matrix import SIGNS, Cell, Column, cells, columns
from ci.record import Record
from conformance.clauses import Clause

#: Cases that pass in a row are named; what they were made of is shown of the first ones only.
_PASSES_SHOWN = 3


@dataclass(frozen=True)
class Panel:
    """What a cell opens on."""

    anchor: str
    head: Column
    cell: Cell


@dataclass(frozen=True)
class Row:
    """A clause, and a panel a column; words where no case ran."""

    clause: Clause
    panels: tuple[Panel | str, ...]


def as_page(record: Record) -> str:
    """The page as text."""
    return _template().render(
        record=record,
        comparison=record.comparison,
        heads=columns(record),
        rows=list(_rows(record)),
        draw=draw,
        width=WIDTH,
        left=LEFT,
        signs=SIGNS,
        unexpected=UNEXPECTED,
        account=lambda item: record.accounts.get(item.result.nodeid, {}),
        in_full=_in_full,
        passes_shown=_PASSES_SHOWN,
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = Path(__file__).with_name("page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(text)


def _rows(record: Record) -> Iterator[Row]:
    heads = columns(record)
    for clause, row in cells(record):
        panels = tuple(
            cell if isinstance(cell, str) else Panel(f"{clause.id}-{head.name}", head, cell)
            for head, cell in zip(heads, row, strict=True)
        )
        yield Row(clause, panels)


def _in_full(cell: Cell) -> list[Compared]:
    """The cases that a panel shows in full: those that do not pass, and a few that do."""
    wrong = [i for i in cell.items if i.state not in ("pass", "left out")]
    passes: list[Any] = [i for i in cell.items if i.state == "pass"]
    return wrong + passes[:_PASSES_SHOWN]
