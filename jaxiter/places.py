"""Where processes meet: which iterator of one process belongs to which of another.

A place is a name, an ordinal (the how-manieth iterator of that name this process made) and an
epoch. Programs are the same on all processes and make their iterators in the same order, so equal
places belong together. Iterators made in several threads need a `name=` of their own each, since
their order is a matter of chance.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from jaxiter.agreement import Final
from jaxiter.errors import Note
from jaxiter.messages import Decision, Report
from jaxiter.rendezvous import Store

_ROOT = "jaxiter"


@dataclass(frozen=True, order=True)
class Place:
    """One epoch of one iterator.

    Attributes:
        name: As given by the user, empty if not.
        ordinal: From 0, for each name.
        epoch: From 0.
    """

    name: str
    ordinal: int
    epoch: int

    @property
    def path(self) -> str:
        """The keys of this place begin with this."""
        return f"{_family(self.name)}/{self.ordinal}.{self.epoch}"

    def __str__(self) -> str:
        name = f"iterator {self.name!r}" if self.name else "iterator"
        return f"{name} #{self.ordinal}, epoch {self.epoch}"


class Registry:
    """The iterators of this process, and the places where they are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: Counter[str] = Counter()
        self._live: dict[Place, tuple[Hashable, Callable[[Note], None]]] = {}

    @property
    def live(self) -> set[Place]:
        """The places where this process is."""
        return set(self._live)

    def ordinal(self, name: str) -> int:
        """Return the ordinal of a new iterator."""
        with self._lock:
            self._made[name] += 1
            return self._made[name] - 1

    def enter(self, place: Place, identity: Hashable, fail: Callable[[Note], None]) -> None:
        """Take in that an epoch begins; if it cannot be told apart from a live one, fail both.

        Args:
            place: Where it is.
            identity: Equal for iterators that could be mistaken for each other.
            fail: Called with the error, from any thread.
        """
        with self._lock:
            twins = [
                (other, fail_other)
                for other, (of_other, fail_other) in self._live.items()
                if of_other == identity and other != place
            ]
            self._live[place] = identity, fail
        for other, fail_other in twins:
            note = Note(
                "MismatchError",
                f"{place} and {other} are in use at the same time and cannot be told apart, so "
                "that processes could mistake one for the other. Give each its own name=.",
                batch=0,
            )
            fail_other(note)
            fail(note)

    def leave(self, place: Place) -> None:
        """Take in that an epoch is over; may be called from a finalizer, so it takes no lock."""
        self._live.pop(place, None)


def strays(
    store: Store, here: Place, live: set[Place], missing: tuple[int, ...]
) -> tuple[Note, Place] | None:
    """On process 0: whether a process that is missing here is elsewhere, and cannot come.

    That is so if it is in a later epoch of this iterator, or waits for process 0 in another
    iterator of this name, as process 0 waits for it here.

    Returns:
        The error, and the place where to announce it as well; None if the missing may still come.
    """
    for place, reports in _others(store, here, live).items():
        for process, report in reports.items():
            if process not in missing or report.standing.left or report.standing.error:
                continue
            later = place.ordinal == here.ordinal and place.epoch > here.epoch
            if later or report.waited_s > 0:
                note = Note(
                    "MismatchError",
                    f"process 0 is in {here}, process {process} in {place}: each would wait for "
                    "the other. Make the iterators, and iterate over them, in the same order on "
                    "all processes; give those that are used in several threads a name= each.",
                    process,
                    0,
                )
                return note, place
    return None


def turn_away(store: Store, place: Place, note: Note) -> None:
    """On process 0: announce an error in a place where process 0 is not."""
    store.set(f"{place.path}/d/0/0", Decision(0, final=Final(error=note)).text())


def _family(name: str) -> str:
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest() if name else "unnamed"
    return f"{_ROOT}/{digest}"


def _others(store: Store, here: Place, live: set[Place]) -> Mapping[Place, Mapping[int, Report]]:
    """Return the latest reports in the places of this name where process 0 is not."""
    family = _family(here.name)
    latest: dict[Place, dict[int, tuple[int, str]]] = {}
    decided = set()
    for key, text in store.list(family).items():
        where, kind, *rest = key.removeprefix(f"{family}/").split("/")
        ordinal, epoch = map(int, where.split("."))
        place = Place(here.name, ordinal, epoch)
        if kind == "d":
            decided.add(place)
        elif kind == "r":
            process, number = int(rest[0]), int(rest[2])
            reports = latest.setdefault(place, {})
            reports[process] = max(reports.get(process, (-1, "")), (number, text))
    return {
        place: {process: Report.parse(text) for process, (_, text) in reports.items()}
        for place, reports in latest.items()
        if place not in live and place not in decided
    }
