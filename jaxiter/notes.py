"""What the errors about several processes say: who differs, how, and what to do next."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxiter.errors import Note

if TYPE_CHECKING:
    from jaxiter.agreement import Standing

_MOST_NAMED = 8  # processes listed one by one in a message


def names(processes: Sequence[int]) -> str:
    """Return 'process 3', or 'processes 0, 2 and 5'."""
    if len(processes) == 1:
        return f"process {processes[0]}"
    if len(processes) > _MOST_NAMED:
        some = ", ".join(map(str, processes[:_MOST_NAMED]))
        return f"processes {some} and {len(processes) - _MOST_NAMED} more"
    *some_, last = map(str, processes)
    return f"processes {', '.join(some_)} and {last}"


def uneven(standings: "Sequence[Standing]", upto: int) -> Note:
    """Return the error for ends that differ, where all had to be alike."""
    groups: dict[str, list[int]] = {}
    for process, standing in enumerate(standings):
        if standing.held > upto:
            words = f"more than {upto} full batches"
        elif standing.ended:
            words = f"{upto} full batches" + (
                f" and one of {standing.tail} rows" if standing.tail else ""
            )
        else:
            continue
        groups.setdefault(words, []).append(process)
    told = "; ".join(f"{words} on {names(who)}" for words, who in groups.items())
    return Note(
        "UnevenError",
        f"the processes have different numbers of rows: {told}. Pass drop_last=True to leave the "
        "rest out, paddings=... to fill it up, or split the data evenly.",
        batch=upto,
    )


def indivisible(row_divisor: int, upto: int, tail: int) -> Note:
    """Return the error for a last batch, alike everywhere, that cannot be split over devices."""
    return Note(
        "UnevenError",
        f"the last batch, batch {upto}, has {tail} rows on each process, which its "
        f"{row_divisor} row shards cannot divide evenly. Pass drop_last=True to leave it "
        "out, or paddings=... to fill it up.",
        batch=upto,
    )


def left(process: int, taken: int) -> Note:
    """Return the error for a process that left its loop alone."""
    return Note(
        "PeerLeftError",
        f"process {process} left its loop after {taken} batches, before the end of the "
        "epoch. Leave the loop on all processes after the same batch, or find out in its log "
        "why it left.",
        process,
        taken,
    )


def schema(position: int, one: int, other: int, words: str) -> Note:
    """Return the error for two processes whose batches are not alike."""
    return Note(
        "MismatchError",
        f"batch {position} differs between processes {one} and {other}: {words}. All processes "
        "must deliver the same columns, dtypes and trailing shapes: see to it in the dataset or "
        "in the collate function, or fix the dtype with dtypes=.",
        batch=position,
    )


def rows(position: int, one: int, other: int, missing: bool) -> Note:
    """Return the error for two processes that must read the same rows and do not."""
    what = "only one of them has a" if missing else "they have different rows in"
    return Note(
        "MismatchError",
        f"the sharding places the same rows on processes {one} and {other}, but {what} batch "
        f"{position}. Let both read the same split, in the same order, from a source that can be "
        "read twice (see row_shard); streaming_split hands out different rows.",
        batch=position,
    )


def disagreement(hellos: Sequence[Mapping[str, Any]]) -> Note | None:
    """Return the error if what must be the same on all processes is not, None if it is.

    Args:
        hellos: For each process, in order of their index, its options as JSON values.
    """
    first = hellos[0]
    if all(hello == first for hello in hellos):
        return None
    words = []
    for option in sorted({option for hello in hellos for option in hello}):
        values: dict[str, list[int]] = {}
        for process, hello in enumerate(hellos):
            values.setdefault(json.dumps(hello.get(option), sort_keys=True), []).append(process)
        if len(values) > 1:
            here = "; ".join(f"{value} on {names(who)}" for value, who in values.items())
            words.append(f"{option} is {here}")
    return Note(
        "MismatchError",
        f"the processes disagree: {'. '.join(words)}. Pass the same values on all processes. If "
        "these are different iterators that met by mistake, give each its own name=.",
        batch=0,
    )
