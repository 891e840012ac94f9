"""What was explored, piece by piece: kept in a file, to go on from there, and as a table.

A line of the file counts only as long as the code that it is of: the iterator's, the simulation's
and the search's.
"""

import contextlib
import fcntl
import functools
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

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

    @property
    def is_cut(self) -> bool:
        """Whether it ended before all was looked at, with nothing wrong so far."""
        return not self.complete and not self.wrong

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


class RecordError(Exception):
    """A file cannot be used as a record."""


def open_record(record: Path) -> dict[str, Explored]:
    """Return the lines of a file that are of this code, by piece; make it if there is none.

    Raises:
        RecordError: The file cannot be read or written, or has a line that is not of a record.
    """
    if record.exists() and not record.is_file():
        raise RecordError(f"{record}: not a file")
    with _locked(record) as file:
        lines, last = _lines(file)
        known = {}
        for number, text in enumerate(lines, 1):
            try:
                fields = json.loads(text)
                if fields["code"] == code():
                    known[fields["piece"]] = Explored(**fields)
            except (ValueError, LookupError, TypeError) as error:
                raise RecordError(
                    f"{record}, line {number}: not what was explored of a piece; remove the line, "
                    f"or name another file: {error!r}"
                ) from error
        _end(file, last)
    return known


def add(record: Path, line: Explored) -> None:
    """Add a line to a file that `open_record` has opened before.

    Raises:
        RecordError: It cannot be written, as on a disk that is full.
    """
    with _locked(record) as file:
        _end(file, _lines(file)[1])
        file.write(json.dumps(asdict(line)).encode() + b"\n")


@contextlib.contextmanager
def _locked(record: Path) -> Iterator[IO[bytes]]:
    try:
        with record.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
    except OSError as error:
        raise RecordError(f"{record}: cannot be used as a record: {error.strerror}") from error


def _lines(file: IO[bytes]) -> tuple[list[bytes], bytes]:
    """Return all lines, and of the last what lacks its end.

    Lines are written under the lock: whoever has begun one that is cut has ended since.
    """
    file.seek(0)
    *lines, last = file.read().split(b"\n")
    if _is_whole(last) or not _is_begun(last):
        lines.append(last)
    return lines, last


def _is_begun(text: bytes) -> bool:
    return text.startswith(_FIRST_BYTES) or _FIRST_BYTES.startswith(text)


def _is_whole(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _end(file: IO[bytes], last: bytes) -> None:
    """End the last line of a file; what is cut of one is removed."""
    if _is_whole(last):
        file.write(b"\n")
    elif _is_begun(last):
        file.truncate(file.seek(0, os.SEEK_END) - len(last))


_FIRST_BYTES = b'{"piece": '


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
