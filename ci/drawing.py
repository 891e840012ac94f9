"""The events of a case's processes as a small picture: one line a process, time to the right. Pure.

Each event has a letter as well as a colour, and a title that a pointer or a screen reader tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, LINE, LEFT = 900, 26, 150
#: A letter for each kind of event that the suite records; others have a dot.
LETTERS = {
    "next": "n",
    "batch": "b",
    "step": "s",
    "stepped": "S",
    "moved": "m",
    "end": "E",
    "lost": "X",
    "log": "w",
}


@dataclass(frozen=True)
class Mark:
    """One event: where it is drawn, its letter, and what it says."""

    x: float
    y: int
    letter: str
    title: str


@dataclass(frozen=True)
class Drawing:
    """A picture's size, the names of its lines, its marks, and the seconds that it spans."""

    height: int
    lines: tuple[tuple[int, str], ...]
    marks: tuple[Mark, ...]
    span_s: float


def draw(observed: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """The picture of what was seen of each process; None where nothing was recorded."""
    times_s = [t for process in observed for t, _, _ in process["events"]]
    if not times_s:
        return None
    start_s, span_s = min(times_s), max(times_s) - min(times_s)
    scale = (WIDTH - LEFT - 20) / (span_s or 1.0)
    marks = []
    for number, process in enumerate(observed):
        y = LINE * (number + 1)
        for t_s, kind, k in process["events"]:
            x = round(LEFT + 8 + (t_s - start_s) * scale, 1)
            batch = "" if k is None else f" {k}"
            title = f"process {number}, {t_s - start_s:.3f} s: {kind}{batch}"
            marks.append(Mark(x, y, LETTERS.get(kind, "·"), title))
    lines = tuple(
        (LINE * (n + 1), f"process {n} {process['outcome']}") for n, process in enumerate(observed)
    )
    return Drawing(LINE * (len(observed) + 1), lines, tuple(marks), span_s)
