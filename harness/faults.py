"""Faults at a given batch or phase of a given rank, as data: printed, sent, seeded, shrunk.

```python
def train(batches):
    for k in range(batches):
        if faults.point("batch", k):  # nothing without a schedule; true: leave the loop
            break
        ...


schedule = Schedule((Stop(rank=1, batch=2, for_s=3.0), Raise(rank=0, batch=5)))
gang.run(schedule.around(train), 10)
```
"""

from __future__ import annotations

import builtins
import functools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from harness.faults_inside import each, injected, point

__all__ = [
    "Cut",
    "Delay",
    "Exit",
    "Fault",
    "Kill",
    "Leave",
    "Raise",
    "Schedule",
    "Starve",
    "Stop",
    "each",
    "point",
    "shrink",
]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What every fault has: the point of the run at which it happens, once.

    Attributes:
        rank: of whom.
        batch: the batch, from 0; at whichever is first where `None`.
        phase: the phase, as the code under test names it in `faults.point`.
    """

    rank: int
    batch: int | None = None
    phase: str = "batch"

    def __post_init__(self) -> None:
        name = type(self).__name__
        for field, value in (("rank", self.rank), ("batch", self.batch)):
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
            if not whole and not (field == "batch" and value is None):
                raise ValueError(f"{name}: {field} must be a whole number from 0, not {value!r}")
        if not isinstance(self.phase, str) or not self.phase:
            raise ValueError(f"{name}: phase must be a name, not {self.phase!r}")

    @property
    def kind(self) -> str:
        """Its name in small letters."""
        return type(self).__name__.lower()

    def __str__(self) -> str:
        common = {field.name for field in fields(Fault)}
        own = [field.name for field in fields(self) if field.name not in common]
        words = ", ".join(f"{name}={getattr(self, name)!r}" for name in own)
        at = f"{self.phase}" if self.batch is None else f"{self.phase} {self.batch}"
        return f"rank {self.rank} at {at}: {self.kind}" + (f" ({words})" if words else "")


@dataclass(frozen=True, kw_only=True)
class Raise(Fault):
    """It raises an error.

    Attributes:
        error: the class, by its name among Python's own exceptions.
        message: the text.
    """

    error: str = "RuntimeError"
    message: str = "an injected fault"

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = getattr(builtins, self.error, None)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ValueError(f"Raise: error must name an exception of Python, not {self.error!r}")


@dataclass(frozen=True, kw_only=True)
class _Lasting(Fault):
    for_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.for_s is not None and not self.for_s > 0:
            name = type(self).__name__
            raise ValueError(f"{name}: for_s must be more than 0 or None, not {self.for_s!r}")


@dataclass(frozen=True, kw_only=True)
class Delay(_Lasting):
    """It sleeps for `for_s` seconds, or for ever where `None`."""


@dataclass(frozen=True, kw_only=True)
class Stop(_Lasting):
    """SIGSTOP; a process beside it sends SIGCONT after `for_s` seconds, or nobody where `None`."""


@dataclass(frozen=True, kw_only=True)
class Starve(_Lasting):
    """Others take its CPU for `for_s` seconds, or until the run ends where `None`.

    Its threads are bound to one core, and so are processes that compute. It costs that core.

    Attributes:
        share: of the core that is left to one computing thread, 0.02 to 0.5.
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.02 <= self.share <= 0.5:
            raise ValueError(f"Starve: share must be from 0.02 to 0.5, not {self.share!r}")


@dataclass(frozen=True, kw_only=True)
class Cut(_Lasting):
    """It is cut off the coordination service for `for_s` seconds, or until the run ends.

    As by a network that drops packets: nothing is refused, nothing arrives, and what was under way
    arrives once the cut has ended. Collectives that have been used go on.
    """


@dataclass(frozen=True, kw_only=True)
class Kill(Fault):
    """SIGKILL."""


@dataclass(frozen=True, kw_only=True)
class Exit(Fault):
    """The process exits at once, with this status."""

    status: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.status <= 255:
            raise ValueError(f"Exit: status must be from 0 to 255, not {self.status!r}")


@dataclass(frozen=True, kw_only=True)
class Leave(Fault):
    """It leaves its loop early: `faults.point` returns true, `faults.each` ends."""


_KINDS: dict[str, type[Fault]] = {
    kind.__name__.lower(): kind for kind in (Raise, Delay, Stop, Kill, Exit, Leave, Starve, Cut)
}
_LONGEST_S = 2.0


@dataclass(frozen=True)
class Schedule:
    """Faults of one run. Those of one point happen in their order here.

    Attributes:
        faults: any number.
        seed: what `random` made it from, if it did.
    """

    faults: tuple[Fault, ...] = ()
    seed: int | None = None

    @classmethod
    def random(cls, seed: int, processes: int, batches: int, *, most: int = 3) -> Self:
        """Make a schedule of 1 to `most` faults; the same for the same arguments.

        Args:
            seed: any whole number.
            processes: ranks of the gang, 1 or more.
            batches: faults happen at batches 0 to `batches` - 1.
            most: number of faults at most.
        """
        draw = random.Random(f"{seed} {processes} {batches} {most}")
        kinds = sorted(_KINDS)
        found: list[Fault] = []
        for _ in range(draw.randint(1, most)):
            kind = _KINDS[draw.choice(kinds)]
            at: dict[str, Any] = {
                "rank": draw.randrange(processes),
                "batch": draw.randrange(batches),
            }
            if issubclass(kind, _Lasting):
                at["for_s"] = draw.choice([0.1, 0.5, _LONGEST_S])
            found.append(kind(**at))
        return cls(tuple(found), seed)

    def to_json(self) -> str:
        """Write it as one line of JSON, which `from_json` reads."""
        return json.dumps(
            {"seed": self.seed, "faults": [{"kind": f.kind, **asdict(f)} for f in self.faults]}
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is no schedule; the text says which fault and why.
        """
        try:
            content = json.loads(text)
            entries = [dict(entry) for entry in content["faults"]]
            seed = content.get("seed")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a schedule, which has `faults` and `seed`: {error}") from error
        return cls(tuple(_fault(n, entry) for n, entry in enumerate(entries)), seed)

    def around(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Give a function for `Gang.run` that calls `fn` with these faults.

        It has the name and the arguments of `fn`, so it may decorate a test that runs on ranks.
        """

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return injected(self, fn, *args, **kwargs)

        call.__qualname__ = getattr(fn, "__qualname__", repr(fn))
        return call

    def of(self, rank: int) -> tuple[Fault, ...]:
        """Give the faults of one rank."""
        return tuple(fault for fault in self.faults if fault.rank == rank)

    def __str__(self) -> str:
        seed = "" if self.seed is None else f" of seed {self.seed}"
        lines = "".join(f"\n  {fault}" for fault in self.faults) or " none"
        return f"faults{seed}:{lines}"


def _fault(number: int, entry: dict[str, Any]) -> Fault:
    kind = entry.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"fault {number}: kind must be one of {sorted(_KINDS)}, not {kind!r}")
    try:
        return _KINDS[kind](**entry)
    except TypeError as error:
        raise ValueError(f"fault {number}: {error}") from error


def shrink(schedule: Schedule, still_fails: Callable[[Schedule], bool]) -> Schedule:
    """Find a smallest schedule that still fails: no single step makes it smaller.

    Steps are: leave faults out, halves first, then one by one; then for each an earlier batch, a
    lower rank, a shorter time.

    Args:
        schedule: one that fails.
        still_fails: runs a schedule, and says whether what is looked for happens again. It is asked
            once about each.

    Raises:
        ValueError: `schedule` itself does not fail.
    """
    asked: dict[tuple[Fault, ...], bool] = {}

    def fails(candidate: Schedule) -> bool:
        if candidate.faults not in asked:
            asked[candidate.faults] = still_fails(candidate)
        return asked[candidate.faults]

    if not fails(schedule):
        raise ValueError(f"it does not fail, so it cannot be shrunk: {schedule}")
    while True:
        smaller = next((each for each in _smaller(schedule) if fails(each)), None)
        if smaller is None:
            return schedule
        schedule = smaller


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    faults = schedule.faults
    if len(faults) > 2:
        half = len(faults) // 2
        yield replace(schedule, faults=faults[:half])
        yield replace(schedule, faults=faults[half:])
    for number in range(len(faults)):
        yield replace(schedule, faults=faults[:number] + faults[number + 1 :])
    for number, fault in enumerate(faults):
        for simpler in _simpler(fault):
            changed = (*faults[:number], simpler, *faults[number + 1 :])
            yield replace(schedule, faults=changed)


def _simpler(fault: Fault) -> Iterator[Fault]:
    if fault.batch:
        for batch in dict.fromkeys((0, fault.batch // 2, fault.batch - 1)):
            yield replace(fault, batch=batch)
    if fault.rank:
        for rank in dict.fromkeys((0, fault.rank - 1)):
            yield replace(fault, rank=rank)
    if isinstance(fault, _Lasting) and fault.for_s is not None and fault.for_s > 0.1:
        yield replace(fault, for_s=max(0.1, round(fault.for_s / 2, 3)))
