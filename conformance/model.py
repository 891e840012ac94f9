"""What a case is: shards, options and use, as plain data that any process can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["memory", "ray"]

#: The padding of most cases: no value of a row equals it, in any column.
PADDING = -7


@dataclass(frozen=True)
class Topology:
    """How many processes a case runs on, and how many devices each has."""

    processes: int
    devices: int

    def __str__(self) -> str:
        return f"p{self.processes}d{self.devices}"


@dataclass(frozen=True)
class Column:
    """A column of a shard; ``values`` names how its values are made (see ``rows.py``).

    ``dtype`` is a numpy dtype's name. ``trailing`` is the shape of one row.
    """

    name: str
    dtype: str = "float32"
    trailing: tuple[int, ...] = ()
    values: str = "coded"


ID = Column("id", "int32")
X = Column("x", "float32", (3,))


@dataclass(frozen=True)
class Fault:
    """What goes wrong in one shard, when its source is asked for piece ``at``.

    ``where``: ``source`` (an iterable in memory, or a Ray transformation) or ``collate``.
    """

    where: Literal["source", "collate"]
    at: int
    text: str = "injected fault"


@dataclass(frozen=True)
class Shard:
    """What one process reads: pieces of ``sizes`` rows (a batch in memory, a block in Ray).

    ``later`` replaces the columns from piece ``later_from`` on. ``bare``: one array instead of a
    mapping. ``delay_s`` passes before each piece. ``short`` names a column that lacks the last two
    rows of every piece. ``reuse`` writes every piece into the same buffer, ``reuse`` bytes past an
    aligned address, and hands out views of it.
    """

    sizes: tuple[int, ...]
    columns: tuple[Column, ...] = (ID, X)
    fault: Fault | None = None
    later: tuple[Column, ...] = ()
    later_from: int = 0
    bare: bool = False
    delay_s: float = 0.0
    short: str = ""
    reuse: int | None = None

    @property
    def rows(self) -> int:
        """Rows in all pieces."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Split:
    """One Ray dataset for all processes, and how it is split.

    ``how``: ``indices`` (``split_at_indices`` at ``at``), ``split`` (``split(equal=False)``),
    ``streaming`` and ``streaming_equal``, or ``filter`` (``split_at_indices``, then each process
    keeps the rows whose id is not in its ``dropped``).
    """

    how: Literal["indices", "split", "streaming", "streaming_equal", "filter"]
    blocks: tuple[int, ...]
    at: tuple[int, ...] = ()
    dropped: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Use:
    """What the consumer does with the iterator.

    ``leave`` maps a process to the number of batches after which it leaves its loop, in every epoch
    but the last of several. ``step``: whether each batch is followed by a computation across
    processes. ``style``: ``plain``; ``thread`` (all of it in a thread that is not the main one);
    ``reader_thread`` (a thread iterates, the main thread steps); ``mesh`` (inside ``jax.set_mesh``
    of a two-axis mesh); ``interleaved`` (two iterators in turns); ``crossed`` (the same, opened in
    the other order by odd processes, and with names if ``named``); ``again`` (one
    iterable, iterated anew for each epoch). ``absent`` processes never start to iterate. ``lost``
    maps a process to the signal that it sends itself after its first batch. ``hold``: batches are
    kept, and looked at only at the end. ``move``: each batch is also moved to another sharding.
    ``slow_step_s``: seconds that a process waits in each of its steps.
    """

    epochs: int = 1
    leave: Mapping[int, int] = field(default_factory=dict)
    step: bool = True
    style: Literal[
        "plain", "thread", "reader_thread", "mesh", "interleaved", "crossed", "again"
    ] = "plain"
    named: bool = False
    absent: tuple[int, ...] = ()
    lost: Mapping[int, Literal["SIGKILL", "SIGSTOP"]] = field(default_factory=dict)
    hold: bool = False
    move: bool = False
    slow_step_s: Mapping[int, float] = field(default_factory=dict)

    @property
    def stopped(self) -> tuple[int, ...]:
        """The processes that stop themselves, and that nobody continues."""
        return tuple(process for process, name in self.lost.items() if name == "SIGSTOP")

    @property
    def iterators(self) -> int:
        """How many iterators are alive at once, each over a source of its own."""
        return 2 if self.style in ("interleaved", "crossed") else 1


@dataclass(frozen=True)
class Case:
    """One run of a subject on every process of a topology, and the clauses that it can decide.

    ``shards`` has one entry a process, or ``split`` says how one dataset is shared.
    ``options`` are given to every process; ``own_options`` are one process's beside them.
    ``collate`` names a function of ``collates.py``, and ``delivers`` the columns that it makes, if
    they are others. ``sharding`` names one of ``shardings.py``; with
    ``same_rows`` every process reads the rows of process 0. ``names`` are words that the error
    must hold.
    """

    name: str
    clauses: tuple[str, ...]
    shards: tuple[Shard, ...] = ()
    split: Split | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    own_options: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    collate: str = ""
    delivers: tuple[Column, ...] = ()
    sharding: str = ""
    same_rows: bool = False
    use: Use = Use()
    names: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ("memory", "ray")
    synchronize: bool | None = True

    @property
    def spoils(self) -> bool:
        """Whether processes end it in different states, so that the next case wants fresh ones."""
        leaves = self.use.leave
        alone = bool(leaves) and (len(leaves) < len(self.shards) or len(set(leaves.values())) > 1)
        return alone or bool(self.use.absent or self.use.lost) or self.use.style == "crossed"

    @property
    def needs_tasks(self) -> bool:
        """Whether its Ray datasets are computed as they are read, by tasks in other processes."""
        faulty = any(s.delay_s or (s.fault and s.fault.where == "source") for s in self.shards)
        return faulty or (self.split is not None and self.split.how not in ("indices", "split"))

    @property
    def patience_s(self) -> float:
        """How much longer than others a case may stand still: it waits for a time-out."""
        return 3 * float(self.options.get("sync_timeout_s", 0.0))

    def owner(self, process: int) -> int:
        """Whose rows ``process`` reads."""
        return 0 if self.same_rows else process

    def options_of(self, process: int) -> dict[str, Any]:
        """The keyword arguments that ``process`` gives to the iterator, but for ``collate_fn``."""
        own = dict(self.options) | dict(self.own_options.get(process, {}))
        if self.synchronize is not None:
            own.setdefault("synchronize_batches", self.synchronize)
        return own
