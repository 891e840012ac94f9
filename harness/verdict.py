"""One verdict on a whole run: what went wrong first, where, by which rank, who waits. Pure.

It is made of outcomes and flight records alone, so it can be made again from what was kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.diagnosis import place_of
from harness.injected import injected, missed
from harness.mismatch import counts_of, uneven, unlike
from harness.outcome import Died, Finished, Hung, Outcome, Raised, Returned, Undecided, state_of
from harness.output import last_words
from harness.screen import CAUSED, screen
from harness.stacks import ranks_text

Word = Literal[
    "ok",
    "common error",
    "missing rank",
    "count mismatch",
    "shape mismatch",
    "dtype mismatch",
    "one-sided error",
    "died",
    "stopped",
    "slow",
    "undecided",
]

# Errors that JAX raises because something has happened to a peer.
_FOLLOWS = re.compile(
    r"\bgloo\b|^(UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED)\b|coordination service", re.I
)
_TASKS = re.compile(r"timed out task names:(?P<names>.*)", re.S)
# A death may be known later than the errors that it causes, by as much.
_DEATH_DELAY_S = 1.0


@dataclass(frozen=True)
class Failure:
    """One rank's failure.

    Attributes:
        rank: whose.
        at_s: seconds from the start of the run.
        what: in one line: `ValueError: no more rows`, `died by SIGKILL`, `stopped (SIGSTOP)`.
        kind: the error's class, by its qualified name; `died` or `stopped`.
        batch: the batch that the rank was at, where its record says so.
        phase: the phase likewise.
        traceback: of an error; of a death, in what words the process told of it, if it did.
        follows: it follows from what another rank did.
    """

    rank: int
    at_s: float
    what: str
    kind: str
    batch: int | None = None
    phase: str | None = None
    traceback: str = ""
    follows: bool = False


@dataclass(frozen=True)
class Wait:
    """Where a rank that has not ended stands.

    Attributes:
        rank: which.
        place: `in a collective at step.py:30 in f (...)`; empty where it is not known.
        batch: the batch that it is at, where its record says so.
        phase: the phase likewise.
    """

    rank: int
    place: str
    batch: int | None = None
    phase: str | None = None

    @property
    def is_for_peers(self) -> bool:
        """Whether it waits for others: in a collective, or in the coordination service."""
        return self.place.startswith(("in a collective", "in the coordination service"))


@dataclass(frozen=True)
class Verdict:
    """What is to be said of a run.

    Attributes:
        word: one of a fixed vocabulary.
        ranks: the ranks at fault, in order; those that did what others did not.
        batch: the batch at which, from 0; `None` where no record says so.
        phase: the phase at which, likewise.
        because: the reason, in one sentence without the full stop.
        first: the first failure, if any rank failed by itself.
        later: the other failures, in order of time.
        waiting: the ranks that have not ended.
        outcomes: what the verdict is on; index = rank.
        faults: those that were injected, in a few words each, in order of time.
        missed: those that were scheduled on ranks that returned without having come to them.
    """

    word: Word
    because: str
    ranks: tuple[int, ...] = ()
    batch: int | None = None
    phase: str | None = None
    first: Failure | None = None
    later: tuple[Failure, ...] = ()
    waiting: tuple[Wait, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    faults: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all ranks returned, and their records agree."""
        return self.word == "ok"

    @property
    def headline(self) -> str:
        """One line: `one-sided error: rank 1 at batch 2: ValueError: no more rows`."""
        who = f"{ranks_text(self.ranks)}" if self.ranks else ""
        at = "" if self.batch is None else f" at batch {self.batch}"
        at += "" if self.phase is None else f" in phase {self.phase!r}"
        parts = [self.word, f"{who}{at}".strip(), self.because]
        return ": ".join(part for part in parts if part)

    def show(self, width: int = 100) -> str:
        """Say all in about one screen: headline, first failure, who waits; stacks at the end."""
        return screen(self, width)


def verdict(outcomes: Sequence[Outcome], *, follows: Collection[str] = ()) -> Verdict:
    """Judge one run.

    What happened first decides, not what was seen last. Times of ranks on one host are compared;
    across hosts the difference is that of two starts of one run, so an error that follows from a
    peer's failure is known by its kind, and never comes first where there is another.

    Args:
        outcomes: what `Gang.run` returned.
        follows: qualified names of error classes that a rank raises because of a peer, beyond
            JAX's own: they are never the cause where there is another.
    """
    failures = sorted(_failures(outcomes, follows), key=_order)
    waiting = tuple(_wait(o) for o in outcomes if isinstance(o, Hung | Undecided) and not o.stopped)
    causes = [failure for failure in failures if not failure.follows]
    told = _told_first(failures)
    faults = injected(outcomes)
    common: dict[str, Any] = {
        "first": told[0] if told else None,
        "later": tuple(told[1:]),
        "waiting": waiting,
        "outcomes": tuple(outcomes),
        "faults": faults,
        "missed": missed(outcomes),
    }
    found = unlike(outcomes)
    if found is not None and not (causes and causes[0].at_s < found[0]):
        return Verdict(**found[1], **common)
    named = _cause(causes, outcomes) if causes else _no_cause(failures, waiting, outcomes, faults)
    return Verdict(**named, **common)


def _told_first(failures: Sequence[Failure]) -> list[Failure]:
    """The same, but of errors of the first one's kind the one that was raised from another leads.

    Where one rank tells its error to all, only its own traceback holds what it came from.
    """
    alike = [f for f in failures if f.kind == failures[0].kind and not f.follows]
    root = next((f for f in alike if CAUSED in f.traceback), None)
    return list(failures) if root is None else [root, *(f for f in failures if f is not root)]


def _failures(outcomes: Sequence[Outcome], follows: Collection[str]) -> list[Failure]:
    found: list[Failure] = []
    for o in outcomes:
        batch, phase = _standing(o)
        for event in o.events:
            if event.kind == "error" or (event.kind == "end" and "type" in event.fields):
                text = {k: str(event.fields.get(k, "")) for k in ("type", "message", "traceback")}
                at_s = event.t_s - o.start_s
                after = _is_after(text["message"], [text["type"]], follows)
                what = _named(text["type"], text["message"])
                where = (event.batch if event.batch is not None else batch, event.phase or phase)
                found.append(
                    Failure(o.rank, at_s, what, text["type"], *where, text["traceback"], after)
                )
        match o:
            case Raised():
                at_s = o.elapsed_s if o.t_s is None else o.t_s - o.start_s
                after = _is_after(o.message, o.mro, follows)
                what = _named(o.type, o.message)
                found.append(Failure(o.rank, at_s, what, o.type, batch, phase, o.traceback, after))
            case Died():
                after = o.after is not None
                words = "\n".join(last_words(o.output))
                found.append(
                    Failure(o.rank, o.elapsed_s, state_of(o), "died", batch, phase, words, after)
                )
            case Hung(stopped=True) | Undecided(stopped=True):
                at_s = o.elapsed_s if o.stopped_s is None else o.stopped_s
                found.append(Failure(o.rank, at_s, "stopped (SIGSTOP)", "stopped", batch, phase))
    return found


def _named(type_: str, message: str) -> str:
    return f"{type_}: {message}" if message else type_


def _is_after(message: str, kinds: Collection[str], follows: Collection[str]) -> bool:
    return bool(_FOLLOWS.search(message)) or any(kind in follows for kind in kinds)


def _order(failure: Failure) -> tuple[bool, float, int]:
    late_s = _DEATH_DELAY_S if failure.kind == "died" else 0.0
    return failure.follows, failure.at_s - late_s, failure.rank


def _standing(outcome: Outcome) -> tuple[int | None, str | None]:
    """The batch and the phase that a rank is at, from its last events that say so."""
    batch = next((e.batch for e in reversed(outcome.events) if e.batch is not None), None)
    phase = next((e.phase for e in reversed(outcome.events) if e.phase is not None), None)
    return batch, phase


def _wait(outcome: Hung | Undecided) -> Wait:
    return Wait(outcome.rank, place_of(outcome.stacks), *_standing(outcome))


def _cause(causes: Sequence[Failure], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Name what the first failure is; `causes` are in order of time, and not empty."""
    first = causes[0]
    alike = tuple(sorted({f.rank for f in causes if f.kind == first.kind}))
    named: dict[str, Any] = {
        "ranks": alike,
        "batch": first.batch,
        "phase": first.phase,
        "because": _line(first.what),
    }
    if first.kind == "died":
        because = _line(first.what).removeprefix("died ")  # the word says it
        return {**named, "word": "died", "ranks": (first.rank,), "because": because}
    if first.kind == "stopped":
        return {**named, "word": "stopped"}
    counts = counts_of(outcomes)
    if (
        len(alike) == len(outcomes)
        and all(isinstance(outcome, Finished) for outcome in outcomes)
        and all(count == counts[0] for count in counts)
    ):
        return {**named, "word": "common error"}
    return {**named, "word": "one-sided error"}


def _no_cause(
    failures: Sequence[Failure],
    waiting: Sequence[Wait],
    outcomes: Sequence[Outcome],
    faults: Sequence[str],
) -> dict[str, Any]:
    """Judge a run in which no rank failed by itself."""
    returned = [o for o in outcomes if isinstance(o, Returned)]
    counted = uneven(outcomes)
    if counted is not None:
        return counted
    if len(returned) == len(outcomes):
        despite = f" in spite of {', '.join(faults)}" if faults else ""
        return {"word": "ok", "because": f"all {len(outcomes)} returned{despite}"}
    tasks = {task for f in failures for task in _missing_tasks(f.what)} & set(range(len(outcomes)))
    if tasks:
        them = "it" if len(tasks) == 1 else "them"
        return _missing(tasks, outcomes, f"did not come to where the others waited for {them}")
    undecided = [o for o in outcomes if isinstance(o, Undecided)]
    if undecided:
        return _late(undecided, waiting)
    if returned:
        asleep = [wait for wait in waiting if wait.place.startswith("asleep")]
        if len(asleep) == len(waiting) > 0:  # nobody waits for who has returned
            return _missing({wait.rank for wait in asleep}, outcomes, _stand(asleep))
        ranks = {o.rank for o in returned}
        return _missing(ranks, outcomes, "returned while the others wait")
    for_peers = {wait.rank for wait in waiting if wait.is_for_peers} | {f.rank for f in failures}
    absent = {wait.rank for wait in waiting} - for_peers
    if not absent and waiting:
        absent = _behind(waiting)
        for_peers = {wait.rank for wait in waiting} - absent
    if absent and for_peers:
        return _missing(absent, outcomes, _stand([w for w in waiting if w.rank in absent]))
    if failures:
        return {
            "word": "undecided",
            "because": f"only what follows from something else was seen: {_line(failures[0].what)}",
            "batch": failures[0].batch,
        }
    where = _common_place(waiting)
    return {
        "word": "undecided",
        "because": f"all ranks wait, {where}, and none is behind the others",
        "batch": waiting[0].batch if waiting else None,
    }


def _stand(waiting: Sequence[Wait]) -> str:
    """Say where ranks are: `is asleep at ...`, `are at ...`, `waits for another thread at ...`."""
    place = _common_place(waiting)
    one = len(waiting) == 1
    if place.startswith("for "):
        return f"{'waits' if one else 'wait'} {place}"
    return f"{'is' if one else 'are'} {place}"


def _common_place(waiting: Sequence[Wait]) -> str:
    places = {wait.place for wait in waiting}
    if len(places) > 1:
        return "at different places"
    return "".join(places) or "at a place that is not known"


def _late(undecided: Sequence[Undecided], waiting: Sequence[Wait]) -> dict[str, Any]:
    busy = tuple(o.rank for o in undecided if o.busy)
    # A rank may poll while it waits: those that do not wait for others are what they wait for.
    own = tuple(wait.rank for wait in waiting if wait.rank in busy and not wait.is_for_peers)
    ranks = own or busy
    if not ranks:
        because = "the deadline passed before the gang had stood still for long enough"
        return {"word": "undecided", "because": because, "batch": _least(waiting)}
    at = next(wait for wait in waiting if wait.rank == ranks[0])
    return {
        "word": "slow",
        "ranks": ranks,
        "batch": at.batch,
        "phase": at.phase,
        "because": f"made progress to the last, {at.place}".rstrip(", "),
    }


def _missing(ranks: Collection[int], outcomes: Sequence[Outcome], why: str) -> dict[str, Any]:
    standing = [_standing(outcomes[rank]) for rank in sorted(ranks)]
    others = [_standing(o)[0] for o in outcomes if o.rank not in ranks]
    at = [batch for batch in others if batch is not None] or [
        b for b, _ in standing if b is not None
    ]
    return {
        "word": "missing rank",
        "ranks": tuple(sorted(ranks)),
        "batch": min(at, default=None),
        "phase": standing[0][1],
        "because": why,
    }


def _missing_tasks(message: str) -> list[int]:
    """Ranks that a barrier of the coordination service names as missing."""
    named = _TASKS.search(message)
    if named is None:
        return []
    # Some versions of JAX give numbers, some `/job:jax_worker/replica:0/task:3`.
    names = named["names"]
    return [int(n) for n in re.findall(r"task:(\d+)" if "task:" in names else r"\d+", names)]


def _behind(waiting: Sequence[Wait]) -> set[int]:
    """Of ranks that all wait for peers: those at an earlier batch than others, if any."""
    if any(wait.batch is None for wait in waiting):
        return set()
    least = _least(waiting)
    behind = {wait.rank for wait in waiting if wait.batch == least}
    return behind if len(behind) < len(waiting) else set()


def _least(waiting: Sequence[Wait]) -> int | None:
    return min((wait.batch for wait in waiting if wait.batch is not None), default=None)


def _line(text: str) -> str:
    first = text.strip().splitlines()[0] if text.strip() else ""
    return first if len(first) <= 200 else first[:200] + "..."
