"""What was explored, piece by piece: kept in a file, to go on from there, and as a table.

A line of the file counts only as long as the code that it is of: the iterator's, the simulation's
and the search's.
"""

import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import harness
import jaxiter
from conformance.simulated_cases import ENDS
from conformance.simulated_parts import Piece
from harness.exploration import Found


@dataclass(frozen=True)
class Explored:
    """One piece of a case, and what came of it.

    Attributes:
        piece: Its name.
        pieces: How many the case has.
        size: What it has in common with all cases of a table.
        ends: What becomes of uneven ends.
        fault: The fault, and of which rank.
        code: What the line is of.
        states: Distinct states.
        steps: Steps between them.
        ends_found: States in which nothing more happens.
        seconds: Of processor time.
        complete: Whether all states were looked at.
        wrong: What is wrong; empty if nothing.
    """

    piece: str
    pieces: int
    size: str
    ends: str
    fault: str
    code: str
    states: int
    steps: int
    ends_found: int
    seconds: float
    complete: bool
    wrong: str

    @staticmethod
    def of(piece: Piece, found: Found, seconds: float) -> "Explored":
        """Return the line of a piece."""
        case = piece.case
        return Explored(
            piece.name,
            piece.of,
            case.size,
            case.ends,
            case.what,
            code(),
            found.states,
            found.steps,
            found.ends,
            round(seconds, 1),
            found.complete,
            found.wrong,
        )


@functools.cache
def code() -> str:
    """Return what distinguishes this code from any other, in short."""
    here = Path(__file__)
    files = [
        *(Path(jaxiter.__file__).with_name(f"{name}.py") for name in _MACHINE),
        *(Path(harness.__file__).parent / f"{name}.py" for name in _SEARCH),
        *(here.with_name(f"simulated_{name}.py") for name in _SIMULATED),
    ]
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: (file.parent.name, file.name)):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


_MACHINE = (
    "actions",
    "aftermath",
    "agreement",
    "deciding",
    "engine",
    "errors",
    "messages",
    "notes",
    "protocol",
)
_SIMULATED = ("cases", "engine", "parts", "rank", "script")
_SEARCH = ("arrays", "automaton", "exploration", "folding", "frontier", "simulation", "worlds")


def read(record: Path) -> dict[str, Explored]:
    """Return the lines of a file that are of this code, by piece; none if there is no file."""
    if not record.exists():
        return {}
    found = map(json.loads, record.read_text("utf-8").splitlines())
    return {line["piece"]: Explored(**line) for line in found if line["code"] == code()}


def add(record: Path, line: Explored) -> None:
    """Add a line to a file."""
    with record.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(line)) + "\n")


def table(lines: Iterable[Explored]) -> str:
    """Return a Markdown table of each size: states and seconds for each fault and kind of end."""
    by_size = sorted(lines, key=lambda line: line.size)
    tables = [_one(size, list(of)) for size, of in itertools.groupby(by_size, lambda x: x.size)]
    return "\n\n".join(tables)


def _one(size: str, lines: Sequence[Explored]) -> str:
    by_case: dict[tuple[str, str], list[Explored]] = {}
    for line in lines:
        by_case.setdefault((line.fault, line.ends), []).append(line)
    whole = {case: of for case, of in by_case.items() if len(of) == of[0].pieces}
    states, steps, seconds = (
        sum(getattr(line, name) for of in whole.values() for line in of)
        for name in ("states", "steps", "seconds")
    )
    rows = [
        f"{size}: {len(whole)} cases, {states:,} states, {steps:,} steps, {seconds:,.0f} s",
        "",
        "| fault | " + " | ".join(f"`{ends}`: states | s" for ends in ENDS) + " |",
        "| --- |" + " ---: | ---: |" * len(ENDS),
    ]
    for fault in dict.fromkeys(line.fault for line in lines):
        cells = [fault]
        for ends in ENDS:
            cells += _cells(whole.get((fault, ends), []))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _cells(of: Sequence[Explored]) -> list[str]:
    if not of:
        return ["", ""]
    wrong, complete = any(line.wrong for line in of), all(line.complete for line in of)
    how = " **wrong**" if wrong else "" if complete else " not all"
    return [f"{sum(line.states for line in of):,}{how}", f"{sum(line.seconds for line in of):,.1f}"]
