"""What the source and the consumer of simulated processes may do, and what they have in common."""

import functools
from dataclasses import dataclass, replace
from typing import Any

from jaxiter.agreement import Terms
from jaxiter.deciding import Timing
from jaxiter.protocol import Machine

SCHEMA = "s"


@dataclass(frozen=True)
class Script:
    """What the source and the consumer of one process may do. Where several are possible, any.

    Attributes:
        ends: (full batches, rows of a last short one): where the source may be exhausted.
        fails: Positions of batches instead of which the source may raise.
        hangs: Positions of batches that the source may never give.
        leaves: Numbers of batches after which the consumer may leave its loop.
        stays: Whether the consumer may also go on where it may leave.
        stuck: Positions of batches whose step may never be over.
        unplaced: Positions of batches that cannot be put on a device.
        schemas: (position, schema) wherever the schema changes.
        agreed: Options that must be the same on all processes.
        row_set: Which rows it holds; None: its own.
        checksums: What checksums of its rows begin with; None if there are none.
        absent: It never calls iter().
    """

    ends: frozenset[tuple[int, int]] = frozenset({(0, 0)})
    fails: frozenset[int] = frozenset()
    hangs: frozenset[int] = frozenset()
    leaves: frozenset[int] = frozenset()
    stays: bool = True
    stuck: frozenset[int] = frozenset()
    unplaced: frozenset[int] = frozenset()
    schemas: tuple[tuple[int, str], ...] = ()
    agreed: tuple[tuple[str, Any], ...] = ()
    row_set: int | None = None
    checksums: str | None = None
    absent: bool = False

    def schema(self, position: int) -> str:
        """Return the schema of the batch at `position`."""
        return max(((p, s) for p, s in self.schemas if p <= position), default=(0, SCHEMA))[1]

    def checksum(self, position: int) -> str | None:
        """Return the checksum of the rows of the batch at `position`."""
        return None if self.checksums is None else f"{self.checksums}{position}"

    @functools.cached_property
    def furthest(self) -> int:
        """The position at which the source must have come to its end at the latest."""
        places = [full for full, _ in self.ends] + list(self.fails) + list(self.hangs)
        return max(places, default=0)

    def apart(self) -> list["Script"]:
        """Return scripts with one stop of the source each, which together allow what this does."""
        never = replace(self, ends=frozenset(), fails=frozenset(), hangs=frozenset())
        return [
            *(replace(never, ends=frozenset({end})) for end in sorted(self.ends)),
            *(replace(never, fails=frozenset({position})) for position in sorted(self.fails)),
            *(replace(never, hangs=frozenset({position})) for position in sorted(self.hangs)),
        ]

    def at_source(self, position: int) -> list[str]:
        """Return what the source may do when asked for the batch at `position`."""
        found = ["batch"] if position < self.furthest else []
        found += [f"end {rows}" for full, rows in sorted(self.ends) if full == position]
        if position in self.fails:
            found.append("fail")
        if position in self.hangs:
            found.append("hang")
        return found


@dataclass(frozen=True)
class Setting:
    """What is the same for all processes of a simulation.

    Attributes:
        terms: Options.
        timing: Seconds; powers of 2, so that sums of them are exact.
        prefetch: Batches on devices ahead of the consumer.
        look_ahead: Batches that may be held at the start.
        most_ahead: Batches that memory has room for.
        abridged: Leave out of messages, and of the states that are told apart, what changes
            nothing but the words of logs and the deletion of keys: in reports, how many batches
            the consumer has taken (unless it left), how many decisions are read, whether the
            buffer is full, and for how much longer than the time-out the consumer has waited; of
            errors, the message; of the end, how many rows are dropped; after it, all that was
            reported before; of what process 0 knows, how much longer ago it was than any time that
            it is compared with.
        one_schema: Leave out, likewise, what padding is told of the schema, as all is the same.
        machine: The class of the state machine; another one shows that faults of it are found.
    """

    terms: Terms
    timing: Timing
    prefetch: int = 2
    look_ahead: int = 2
    most_ahead: int = 16
    abridged: bool = False
    one_schema: bool = False
    machine: type[Machine] = Machine
