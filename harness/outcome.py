"""What became of one rank in one run: the values that `Gang.run` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.records import Event


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What every outcome has.

    Attributes:
        rank: the process's number in the gang, 0 to processes - 1.
        events: what the rank recorded in this run, in order.
        elapsed_s: seconds from the start of the run until this outcome was known.
        output: the tail of what the rank wrote to stdout and stderr in this run, 16 KiB at most.
        host: of two ranks with the same, times can be compared; empty where it is not known.
        start_s: the start of the run on the rank's monotonic clock, to which `Event.t_s` and
            `Raised.t_s` belong. On another host than the parent's, when the rank began it.
    """

    rank: int
    events: tuple[Event, ...] = ()
    elapsed_s: float = 0.0
    output: str = ""
    host: str = ""
    start_s: float = 0.0

    def describe(self) -> str:
        """Say in one paragraph what became of the rank."""
        raise NotImplementedError

    @property
    def last_event(self) -> Event | None:
        """The last event that the rank recorded in this run, if any."""
        return self.events[-1] if self.events else None

    def _after(self) -> str:
        return f"{since(self.last_event)}, at {self.elapsed_s:.1f} s"


@dataclass(frozen=True, kw_only=True)
class Finished(Outcome):
    """The function ended by itself: what `Returned` and `Raised` share.

    Attributes:
        left_threads: names of the threads that the function started and that were still alive
            shortly after it ended.
    """

    left_threads: tuple[str, ...] = ()

    def _threads(self) -> str:
        if not self.left_threads:
            return ""
        return f" It left threads behind: {', '.join(self.left_threads)}."


@dataclass(frozen=True, kw_only=True)
class Returned(Finished):
    """The function returned `value`."""

    value: Any = None

    def describe(self) -> str:
        """Say in one paragraph what became of the rank."""
        try:
            text = repr(self.value)
        except Exception as error:  # noqa: BLE001 - runs code of any class
            text = f"<{type(self.value).__qualname__}, no text: {type(error).__name__}>"
        shown = text if len(text) <= 200 else text[:200] + "..."
        return f"Rank {self.rank} returned {shown} {self._after()}.{self._threads()}"


@dataclass(frozen=True, kw_only=True)
class Raised(Finished):
    """The function raised, or its value could not be sent back. `SystemExit` counts as raised.

    Attributes:
        type: the class's qualified name; without the module for builtins (`ValueError`).
        mro: the same for each class it derives from, itself first.
        message: the text of the exception.
        traceback: as Python prints it, with causes and contexts.
        notes: the exception's notes (PEP 678).
        t_s: when it was caught, on the rank's monotonic clock.
    """

    type: str
    mro: tuple[str, ...]
    message: str
    traceback: str = ""
    notes: tuple[str, ...] = ()
    t_s: float | None = None

    def describe(self) -> str:
        """Say in one paragraph what became of the rank."""
        notes = "".join(f" [{note}]" for note in self.notes)
        return (
            f"Rank {self.rank} raised {self.type}: {self.message}{notes} "
            f"({self._after()}).{self._threads()}"
        )


@dataclass(frozen=True, kw_only=True)
class Hung(Outcome):
    """The gang made no progress for `stall_s`, and this rank had not finished.

    Attributes:
        stacks: Python stacks of all threads of this rank, or why there are none.
        why: one sentence for the whole gang that says who waits for whom.
        stopped: this rank was stopped by a signal, so others may wait for it.
        stopped_s: seconds from the start of the run until it was first seen stopped.
    """

    stacks: str
    why: str
    stopped: bool = False
    stopped_s: float | None = None

    def describe(self) -> str:
        """Say in one paragraph what became of the rank."""
        verb = "was stopped (SIGSTOP)" if self.stopped else "hung"
        return f"Rank {self.rank} {verb} {self._after()}: {self.why}."


@dataclass(frozen=True, kw_only=True)
class Died(Outcome):
    """The process ended without saying how its function ended.

    Attributes:
        exit_status: of the process, where it exited.
        signal: the name of the signal that ended it, such as `SIGKILL`.
        after: the rank whose death or stop came before this one's, so is probably its cause;
            `None` for the first.
        detail: what whoever started the process says of its end, if anything.
    """

    exit_status: int | None = None
    signal: str | None = None
    after: int | None = None
    detail: str = ""

    def describe(self) -> str:
        """Say in one paragraph what became of the rank."""
        how = f"by {self.signal}" if self.signal else f"with exit status {self.exit_status}"
        if self.signal is None and self.exit_status is None:
            how = "for a reason that is not known"
        followed = "" if self.after is None else f" It followed rank {self.after}."
        detail = f" {self.detail}" if self.detail else ""
        return f"Rank {self.rank} died {how} {self._after()}.{followed}{detail}"


@dataclass(frozen=True, kw_only=True)
class Undecided(Outcome):
    """The deadline passed while the gang still made progress, or had not stood still for long.

    Attributes:
        stacks: Python stacks of all threads of this rank, or why there are none.
        why: one sentence for the whole gang.
        stopped: this rank was stopped by a signal, so others may wait for it.
        stopped_s: seconds from the start of the run until it was first seen stopped.
        busy: this rank had made progress lately: an event, or CPU time.
    """

    stacks: str
    why: str
    stopped: bool = False
    stopped_s: float | None = None
    busy: bool = False

    def describe(self) -> str:
        """Say in one paragraph what became of the rank."""
        return f"Rank {self.rank} was undecided {self._after()}: {self.why}."


def state_of(outcome: Outcome) -> str:
    """Say in few words how a rank ended, or that it has not: `died by SIGKILL`, `hung`."""
    match outcome:
        case Raised():
            return f"raised {outcome.type}"
        case Died(signal=str()):
            return f"died by {outcome.signal}"
        case Died(exit_status=int()):
            return f"died with exit status {outcome.exit_status}"
        case Died():
            return "died"
        case Hung(stopped=True) | Undecided(stopped=True):
            return "stopped"
        case Hung():
            return "hung"
        case Undecided(busy=True):
            return "undecided, busy"
        case Undecided():
            return "undecided"
    return "returned"


def since(event: Event | None) -> str:
    """Say after which event: `after event #12 'batch' (k=2)`, or `before its first event`."""
    return "before its first event" if event is None else f"after {describe_event(event)}"


def describe_event(event: Event) -> str:
    """Name an event in few words: `event #12 'batch' (k=2)`."""
    short = [
        f"{name}={value!r}"
        for name, value in event.fields.items()
        if isinstance(value, bool | int | float | str) and len(repr(value)) <= 40
    ]
    fields = f" ({', '.join(short[:3])})" if short else ""
    return f"event #{event.seq} {event.kind!r}{fields}"


def needs_fresh_processes(outcomes: list[Outcome]) -> bool:
    """Whether the processes may differ from fresh ones after a run that ended so.

    They are kept only when all ranks returned, or all raised the same type, and none left a
    thread behind.
    """
    if any(not isinstance(o, Finished) or o.left_threads for o in outcomes):
        return True
    kinds = {o.type if isinstance(o, Raised) else None for o in outcomes}
    return len(kinds) > 1
