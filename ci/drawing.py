"""The events of a case's processes as a small picture: one line a process, time to the right. Pure.

Each event has a letter as well as a colour, and a title that a pointer or a screen reader tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, LINE, LEFT = 900, 26, 150
#: Letters stand so far apart at least, or none could be read.
_APART = 9.0
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
        places = _apart([LEFT + 8 + (t_s - start_s) * scale for t_s, _, _ in process["events"]])
        for (t_s, kind, k), x in zip(process["events"], places, strict=True):
            batch = "" if k is None else f" {k}"
            title = f"process {number}, {t_s - start_s:.3f} s: {kind}{batch}"
            marks.append(Mark(x, y, LETTERS.get(kind, "·"), title))
    lines = tuple(
        (LINE * (n + 1), f"process {n} {process['outcome']}") for n, process in enumerate(observed)
    )
    return Drawing(LINE * (len(observed) + 1), lines, tuple(marks), span_s)


def _apart(places: Sequence[float]) -> list[float]:
    """Places in their order, moved as little as makes them stand apart, within the picture."""
    apart = min(_APART, (WIDTH - LEFT - 20) / max(1, len(places) - 1))
    moved: list[float] = []
    for x in places:
        moved.append(max(x, moved[-1] + apart) if moved else x)
    last = WIDTH - 12.0
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], last)
        last = moved[i] - apart
    return [round(x, 1) for x in moved]
