"""What all processes do, computed from what each of them reports. Pure functions, no I/O.

A process reports how many batches it holds, and how its epoch stands: reading, ended, failed or
left. `decide` turns the latest report of every process into one verdict for all: deliver up to a
position; or end there; or raise this error there.

Of several reasons to stop, the one at the lowest position wins, then the end of the data, then the
reason of the lowest process. So a failure at or beyond the agreed end stops nothing.
"""

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from jaxiter import notes
from jaxiter.errors import Note

Changes = tuple[tuple[int, str], ...]  # (position, value) wherever the value changes, in order
SchemaWords = Callable[[str, str, str, str], str]


@dataclass(frozen=True)
class Terms:
    """What the processes agreed on before any of them touched its source.

    Attributes:
        batch_size: Rows of one process in a full batch.
        ends: What becomes of uneven ends. `drop`: the minimum of full batches, short tails left
            out. `pad`: the maximum of batches, padded. `equal`: anything uneven is an error.
        row_divisor: What the rows of one process in any batch must divide by.
        row_sets: For each process, which set of rows it holds. Processes with the same set must
            read the same rows.
    """

    batch_size: int
    ends: Literal["drop", "pad", "equal"]
    row_divisor: int
    row_sets: tuple[int, ...]


@dataclass(frozen=True)
class Standing:
    """What one process has said of its epoch so far.

    Attributes:
        held: Full batches that it has read since the start, whether or not delivered since.
        ended: Its source is exhausted.
        tail: Rows of its last, short batch; 0 if there is none. Known once it ended.
        error: Why it cannot hold more than `held`.
        left: Its consumer left the loop.
        taken: Batches that its consumer has taken.
        reach: Once it ended, where its padding may go to for now: so that no other process runs
            further ahead of its consumer than of one that still has rows.
        schemas: Schemas as text, at least from the position up to which batches are decided.
        sums: Checksums of the rows of each batch, likewise; empty unless rows are replicated.
    """

    held: int = 0
    ended: bool = False
    tail: int = 0
    error: Note | None = None
    left: bool = False
    taken: int = 0
    reach: int = 0
    schemas: Changes = ()
    sums: Changes = ()

    def batches(self, ends: str) -> int:
        """Return how many batches it has to give, the short tail included where that counts."""
        return self.held + (ends != "drop" and self.tail > 0)


@dataclass(frozen=True)
class Final:
    """How the epoch stops, the same on all processes.

    Attributes:
        error: What `next()` raises; None at the regular end.
        left: The process that left, if that is why, and the batches it had taken.
        dropped: Rows left out by `drop_last`, of all processes, as far as known.
    """

    error: Note | None = None
    left: tuple[int, int] | None = None
    dropped: int = 0


@dataclass(frozen=True)
class Verdict:
    """What can be decided now.

    Attributes:
        upto: Batches at positions below this are delivered on all processes.
        final: Whether the epoch stops at `upto`, and how; None if it goes on.
        blocked_by: Processes that must report more before `upto` can grow; empty if it is final.
    """

    upto: int
    final: Final | None = None
    blocked_by: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Stop:
    """A candidate for the end. The lowest one is chosen, in the order of the fields."""

    position: int
    order: int  # -1: the regular end; a process's index; beyond them: about several processes
    final: Final


def _plain_words(here: str, there: str, one: str, other: str) -> str:
    return f"{here} {one}, {there} {other}"


def decide(
    terms: Terms,
    standings: Sequence[Standing],
    decided: int,
    schema_words: SchemaWords = _plain_words,
) -> Verdict:
    """Return the verdict on the latest standings.

    Args:
        terms: What was agreed at the start.
        standings: One a process, in order of their index.
        decided: Batches already decided; the verdict never takes one back.
        schema_words: Says in words how two schemas differ, from their texts and the two places.
    """
    upto, stop, blocked_by = _PROGRESS[terms.ends](terms, standings)
    stops = [] if stop is None else [stop]
    stops += _faults(terms, standings, decided)
    stops += _disagreement(terms, standings, decided, upto, schema_words)
    if not stops:
        return Verdict(max(upto, decided), None, blocked_by)
    first = min(stops, key=lambda stop: (stop.position, stop.order))
    return Verdict(max(min(first.position, upto), decided), first.final)


_Progress = tuple[int, "_Stop | None", tuple[int, ...]]


def _progress_drop(terms: Terms, standings: Sequence[Standing]) -> _Progress:
    upto = min(standing.held for standing in standings)
    last = [p for p, standing in enumerate(standings) if standing.held == upto]
    if any(standings[p].ended for p in last):
        return upto, _Stop(upto, -1, Final(dropped=_dropped(terms, standings, upto))), ()
    return upto, None, tuple(last)


def _progress_pad(terms: Terms, standings: Sequence[Standing]) -> _Progress:
    limits = [max(s.batches(terms.ends), s.reach) if s.ended else s.held for s in standings]
    upto = min(limits)
    if all(standing.ended for standing in standings):
        end = max(standing.batches(terms.ends) for standing in standings)
        if upto >= end:
            return end, _Stop(end, -1, Final()), ()
    return upto, None, tuple(p for p, limit in enumerate(limits) if limit == upto)


def _progress_equal(terms: Terms, standings: Sequence[Standing]) -> _Progress:
    upto = min(standing.held for standing in standings)
    last = [p for p, standing in enumerate(standings) if standing.held == upto]
    ended = [p for p in last if standings[p].ended]
    if not ended:
        return upto, None, tuple(last)
    tails = {standings[p].tail for p in ended}
    if len(tails) > 1 or len(last) < len(standings):
        return upto, _several(upto, notes.uneven(standings, upto)), ()
    going = tuple(p for p in last if not standings[p].ended)
    if going:
        return upto, None, going
    tail = tails.pop()
    if tail % terms.row_divisor:
        return upto, _several(upto, notes.indivisible(terms.row_divisor, upto, tail)), ()
    upto += tail > 0
    return upto, _Stop(upto, -1, Final()), ()


_PROGRESS = {"drop": _progress_drop, "pad": _progress_pad, "equal": _progress_equal}


def _dropped(terms: Terms, standings: Sequence[Standing], upto: int) -> int:
    """Return the rows, of all processes, that are known to be left out."""
    return sum((standing.held - upto) * terms.batch_size + standing.tail for standing in standings)


def _faults(terms: Terms, standings: Sequence[Standing], decided: int) -> list[_Stop]:
    """Return the failures and leaves that may stop the epoch."""
    beyond = None
    if terms.ends == "drop":  # no process will come to a position that one of them has not
        beyond = min((s.held for s in standings if s.ended), default=None)
    stops = []
    for process, standing in enumerate(standings):
        if standing.error is not None and (beyond is None or standing.held < beyond):
            stops.append(_Stop(standing.held, process, Final(error=standing.error)))
        if standing.left:
            final = Final(error=notes.left(process, standing.taken), left=(process, standing.taken))
            stops.append(_Stop(decided, process, final))
    return stops


def _disagreement(
    terms: Terms,
    standings: Sequence[Standing],
    start: int,
    stop: int,
    schema_words: SchemaWords,
) -> list[_Stop]:
    """Return the first batch in `start..stop` whose schema, and whose replicated rows, differ."""
    stops = []
    found = _first_difference(terms, standings, start, stop, _schemas)
    if found is not None:
        position, (one, here), (other, there) = found
        words = schema_words(str(here), str(there), f"on process {one}", f"on process {other}")
        stops.append(_several(position, notes.schema(position, one, other, words)))
    if len(set(terms.row_sets)) < len(terms.row_sets):
        found = _first_difference(terms, standings, start, stop, _sums)
        if found is not None:
            position, (one, here), (other, there) = found
            note = notes.rows(position, one, other, None in (here, there))
            stops.append(_several(position, note))
    return stops


_Seen = tuple[int, str | None]  # (process, its value)


def _first_difference(
    terms: Terms,
    standings: Sequence[Standing],
    start: int,
    stop: int,
    changes: Callable[[Standing], Changes],
) -> tuple[int, _Seen, _Seen] | None:
    """Return the first position where two processes differ that must not, and these two."""
    sets = terms.row_sets if changes is _sums else (0,) * len(standings)
    for position in _breaks(terms, standings, start, stop, changes):
        seen: dict[int, _Seen] = {}
        for process, standing in enumerate(standings):
            value = _value(terms, standing, changes(standing), position)
            if value is None and changes is _schemas:
                continue  # it pads there, with the schema of its peers
            other = seen.setdefault(sets[process], (process, value))
            if other[1] != value:
                return position, other, (process, value)
    return None


def schemas_for_padding(
    terms: Terms, standings: Sequence[Standing], start: int, stop: int, known: str | None
) -> Changes:
    """Return the schemas that processes which pad in `start..stop` must be told.

    Args:
        terms: What was agreed at the start.
        standings: One a process.
        start: First position of the batches in question.
        stop: Position after the last of them.
        known: The schema that they were told last.
    """
    counts = [s.batches(terms.ends) for s in standings if s.ended]
    told: list[tuple[int, str]] = []
    if terms.ends != "pad" or min(counts, default=stop) >= stop:
        return ()
    for position in _breaks(terms, standings, start, stop, _schemas):
        if min(counts) > position:
            continue
        values = (_value(terms, s, s.schemas, position) for s in standings)
        value = next(value for value in values if value is not None)
        if value != known:
            told.append((position, value))
            known = value
    return tuple(told)


def _breaks(
    terms: Terms,
    standings: Sequence[Standing],
    start: int,
    stop: int,
    changes: Callable[[Standing], Changes],
) -> list[int]:
    """Return `start` and the positions up to `stop` where the value of some process changes."""
    if start >= stop:
        return []
    positions = {start}
    for standing in standings:
        positions.update(position for position, _ in changes(standing))
        if standing.ended:
            positions.add(standing.batches(terms.ends))
    return sorted(position for position in positions if start <= position < stop)


def _value(terms: Terms, standing: Standing, changes: Changes, position: int) -> str | None:
    """Return the value at `position`, None where the process has no batch."""
    if standing.ended and position >= standing.batches(terms.ends):
        return None
    index = bisect.bisect_right(changes, position, key=lambda change: change[0])
    return changes[index - 1][1] if index else None


def _schemas(standing: Standing) -> Changes:
    return standing.schemas


def _sums(standing: Standing) -> Changes:
    return standing.sums


def _several(position: int, note: Note) -> _Stop:
    return _Stop(position, 1 << 60, Final(error=note))
