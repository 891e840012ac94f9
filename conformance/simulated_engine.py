"""The iterator's engine without threads, and what tells one state of its machine from another."""

import functools
import math
import operator
import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

from conformance.simulated_script import Setting
from jaxiter.deciding import Timing
from jaxiter.engine import Engine
from jaxiter.errors import Note
from jaxiter.protocol import Machine


class _Bell(threading.Condition):
    """A condition that remembers that it was notified; nobody waits for it in a thread."""

    rung = False

    def notify(self, n: int = 1) -> None:  # noqa: ARG002
        self.rung = True

    def notify_all(self) -> None:
        self.rung = True


class SimulatedEngine(Engine):
    """The engine, with a clock that is set and conditions that remember."""

    room: _Bell
    grants: _Bell
    ready: _Bell

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine, "", sends=True)
        self.room, self.grants, self.ready = _Bell(), _Bell(), _Bell()
        self.now = 0.0
        del self.clock  # see the method
        self.texts: list[str] = []  # of the log
        self.aborted = False

    def clock(self) -> float:  # an attribute would hold its owner
        """Return the virtual time in seconds."""
        return self.now

    def log(self, level: int, message: str, error: BaseException | None = None) -> None:  # noqa: ARG002
        """Keep what is told."""
        self.texts.append(message)

    def _abort(self, message: str) -> None:
        self.texts.append(message)
        self.aborted = True

    def copy(self) -> "SimulatedEngine":
        """Return an independent copy; texts of the log are not copied."""
        twin = object.__new__(SimulatedEngine)
        vars(twin).update(vars(self))
        twin.outbox = deque(self.outbox)
        twin.texts = []
        twin._logs = []
        twin._machine = snapshot(self._machine)
        return twin

    @property
    def machine(self) -> Machine:
        """The state machine."""
        return self._machine


T = TypeVar("T")


def snapshot(state: T) -> T:
    """Return a copy of a state machine that shares what does not change."""
    twin = object.__new__(type(state))
    content = vars(twin)
    content.update(vars(state))
    for name in [name for name, value in content.items() if type(value) is list]:
        content[name] = content[name].copy()
    for name in ("_decider", "_aftermath"):
        if content.get(name) is not None:
            content[name] = snapshot(content[name])
    return twin


_TIMES = frozenset(
    {
        "_waiting_since",
        "_away_since",
        "_heard_at",
        "_sent_at",
        "_news_since",
        "_wake_at",
        "_looked_at",
        "_since",
        "_advanced_at",
        "_spoke_at",
    }
)  # attributes of the machine and its parts that are points in time
_FOR_LOSSES = frozenset({"_away_since"})  # used with `abort_on_loss` alone
# These never change or follow, or, as `_reports`, are for words of warnings.
_SAME = frozenset({"_hello", "_hellos", "_timing", "_options", "_reports"})
_OF_SCHEMAS = frozenset({"_told", "_told_schema"})  # for padding; the aftermath's is another one
_SPECIAL = frozenset({"_seen", "_sent", "_decider", "_aftermath", "_error", "_final"})


def key_of(state: object, now: float, setting: Setting) -> Hashable:
    """Return what distinguishes a state machine from others in its further behaviour.

    Two equal ones at different times are the same: points in time count from `now`. An attribute
    that is not known here counts as it is, so that none is overlooked.

    Args:
        state: The machine, or a part of it.
        now: Seconds.
        setting: Says what to leave out.
    """
    timing = setting.timing
    longest_s = 4 * timing.timeout_s  # longer ago is all the same
    content = vars(state)
    plain, special = _parts(tuple(content), setting.one_schema, timing.abort_on_loss)
    found: list[Hashable] = [
        tuple(value) if type(value) is list else value for value in plain(content)
    ]
    abridged = setting.abridged and not timing.abort_on_loss
    ended = abridged and content.get("_final") is not None
    capped = abridged and timing.warn_s == math.inf
    longest = _longest_s(content, timing) if capped else {}
    over = _TIMES - {"_wake_at"}
    if ended and content.get("_error") is not None:
        over -= {"_waiting_since"}  # it may still be told
    for name in special:
        value = content[name]
        if ended and name == "_aftermath":
            found.append(value is None or value.settled)  # it only logs
        elif ended and name in over:
            found.append(value is None)  # since when, matters to words of logs
        elif name in _TIMES:
            most_s = longest.get(name, longest_s)
            if most_s is None:
                continue
            if type(value) is not list:
                found.append(_ago(value, now, most_s))
            elif name != "_heard_at" or timing.abort_on_loss:  # or else words of warnings
                if capped:  # only what is later than that decision counts
                    most_s = min(most_s, now - content["_advanced_at"])
                found.append(tuple([_ago(moment, now, most_s) for moment in value]))
        elif name == "_seen":
            found.append(value > 0)  # how many, matters to the deletion of keys alone
        elif name == "_sent":
            found.append(None if value is None else (value.standing, value.waited_s > 0))
        elif name == "_decider" and ended and value is not None:
            found.append(value.decided)  # it decides nothing more
        elif name in ("_decider", "_aftermath"):
            found.append(None if value is None else key_of(value, now, setting))
        elif name == "_error":
            found.append(wordless(value) if setting.abridged else value)
        else:
            found.append((wordless(value.error), value.left) if ended else value)
    return tuple(found)


def _longest_s(content: dict[str, Any], timing: Timing) -> dict[str, float | None]:
    """Return for points in time how long ago is all the same: the longest they are compared with.

    None for those that are not compared with anything, as others of process 0 stand for them.
    """
    hold_s = max(timing.lazy_s, timing.soon_s)
    if "_advanced_at" in content:
        return {
            "_waiting_since": timing.timeout_s,
            "_advanced_at": timing.timeout_s,
            "_news_since": hold_s,
            "_spoke_at": timing.beat_s,
        }
    if content.get("_decider") is not None:
        return {
            "_waiting_since": timing.timeout_s,
            "_looked_at": hold_s,
            "_wake_at": 0.0,
            "_sent_at": None,
            "_heard_at": None,
            "_news_since": None,
        }
    return {"_wake_at": 0.0}


def wordless(note: Note | None) -> Note | None:
    """Return an error without its message, in which seconds may be."""
    return None if note is None else replace(note, message="")


@functools.lru_cache
def _parts(
    names: tuple[str, ...], one_schema: bool, abort_on_loss: bool
) -> tuple[Callable[[dict[str, Any]], tuple[Any, ...]], tuple[str, ...]]:
    """Return what gets the attributes that count as they are, and the names of the others."""
    left_out = set(_SAME)
    left_out |= set() if abort_on_loss else _FOR_LOSSES
    left_out |= _OF_SCHEMAS if one_schema and "_aborted" not in names else set()
    counts = [name for name in names if name not in left_out]
    special = tuple(name for name in counts if name in _TIMES or name in _SPECIAL)
    return operator.itemgetter(*(name for name in counts if name not in special)), special


def _ago(moment: float | None, now: float, longest_s: float) -> float | None:
    if moment is None:
        return None
    return round(min(now - moment, longest_s), 6)
