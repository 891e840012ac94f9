"""The clauses of SPEC.md, read from it: the document is the one place where they stand."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Level = Literal["core", "extended"]

_CLAUSE = re.compile(
    r"^### (?P<id>[A-Z]+-\d+) · (?P<level>core|extended)\n(?P<text>.+?)\nSource: (?P<source>.+?)$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Clause:
    """One clause: ``id`` never changes; ``text`` is one sentence with a MUST or a MAY."""

    id: str
    level: Level
    text: str
    source: str


@functools.cache
def clauses() -> dict[str, Clause]:
    """All clauses by id, in the order of the document."""
    text = (Path(__file__).parent / "SPEC.md").read_text(encoding="utf-8")
    found = {m["id"]: Clause(**m.groupdict()) for m in _CLAUSE.finditer(text)}  # type: ignore[arg-type]
    headings = text.count("\n### ")
    if len(found) != headings:
        raise ValueError(f"SPEC.md has {headings} clauses, of which {len(found)} can be read")
    return found
