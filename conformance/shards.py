"""Ways to give shards to the processes of a topology, for the cases of the groups."""

from __future__ import annotations

from dataclasses import replace

from conformance.model import ID, Column, Shard, Topology, X

#: Rows a process in a batch, in most cases: any number of devices here divides it.
B = 4

#: More columns than an iterator may care to move one by one, of two dtypes in turns.
MANY = tuple(Column(f"c{i:02}", "float32" if i % 2 else "int32") for i in range(32))


def shards(
    t: Topology,
    usual: tuple[int, ...],
    odd: tuple[int, ...] | None = None,
    *,
    at: int = -1,
    columns: tuple[Column, ...] = (ID, X),
) -> tuple[Shard, ...]:
    """Pieces of ``usual`` sizes on every process, and of ``odd`` sizes on process ``at``."""
    made = [Shard(usual, columns)] * t.processes
    if odd is not None:
        made[at] = Shard(odd, columns)
    return tuple(made)


def changed(given: tuple[Shard, ...], at: int, **fields: object) -> tuple[Shard, ...]:
    """The same shards, with ``fields`` of the one of process ``at`` replaced."""
    made = list(given)
    made[at] = replace(made[at], **fields)  # type: ignore[arg-type]
    return tuple(made)


def stairs(t: Topology) -> tuple[Shard, ...]:
    """Each process has one batch more than the one before it, and a tail of one row more."""
    return tuple(Shard((B,) * (p + 1) + (p % B,) * (p % B > 0)) for p in range(t.processes))
