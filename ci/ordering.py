"""Which cases a run of the gate takes, and in which order: the most telling first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ci.known import Known
from conformance.model import Kind
from conformance.plan import Planned


@dataclass(frozen=True)
class Choice:
    """``planned`` in the order in which they run; ``spared`` are left out on purpose."""

    planned: list[Planned]
    spared: list[Planned]


def choose(
    everything: Sequence[Planned],
    known: Known,
    *,
    failed: Collection[str] = (),
    one_a_clause: bool = False,
    in_turns: Collection[Kind] = (),
    every_hang: bool = False,
) -> Choice:
    """Order cases so that a run that is cut short has said the most.

    First one case of each clause, on the smallest topology that has one; then the cases of clauses
    that ``failed`` in the run before; then the others, small topologies first. With
    ``one_a_clause`` only one case of each clause on each topology. From sources of the kinds
    ``in_turns`` each case runs on one topology.

    A hang that is known costs seconds to be sure of, so unless ``every_hang`` one known hang of
    each clause is run; the others are spared. What is known to end otherwise always runs.
    """
    ordered = sorted(everything, key=_size)
    first = _covering(ordered, known)
    if one_a_clause:
        others = _per_topology(ordered, known)
    else:
        others = [p for p in ordered if p.kind not in in_turns]
        others += _in_turns([p for p in ordered if p.kind in in_turns], first)
    kept: dict[str, Planned] = {}
    spared: list[Planned] = []
    hung: set[str] = set()
    for p in {p.key: p for p in [*first, *others]}.values():
        if not every_hang and known_to_hang(p, known):
            if set(p.case.clauses) <= hung:
                spared.append(p)
                continue
            hung |= set(p.case.clauses)
        kept[p.key] = p
    early = {p.key for p in first}
    again = {p.key for p in ordered if set(p.case.clauses) & set(failed)}

    def turn(p: Planned) -> tuple[int, tuple[bool, int, int, bool]]:
        return (0 if p.key in early else 1 if p.key in again else 2, _size(p))

    return Choice(sorted(kept.values(), key=turn), spared)


def known_to_hang(planned: Planned, known: Known) -> bool:
    """Whether each clause of a case is known to end in a hang, and in nothing else."""
    case = planned.case
    found = [known.entry_for(c, case.name, planned.topology, planned.kind) for c in case.clauses]
    return all(e is not None and e.outcomes[0] == "hang" for e in found)


def _size(planned: Planned) -> tuple[bool, int, int, bool]:
    """Small first; a single process, which can disagree with nobody, last; memory before Ray."""
    t = planned.topology
    return (t.processes == 1, t.processes, t.devices, planned.kind == "ray")


def _variety(planned: Planned) -> int:
    """How much a case has in which an iterator may go wrong: sizes that differ, within and between
    shards, and faults.
    """
    shards = planned.case.shards
    sizes = {size for shard in shards for size in shard.sizes}
    return len(sizes) + 2 * len({s.rows for s in shards}) + sum(s.fault is not None for s in shards)


def _covering(ordered: Iterable[Planned], known: Known) -> list[Planned]:
    """One case of each clause: on the smallest topology the most telling, and no known hang if
    another says the same.
    """
    found: list[Planned] = []
    open_clauses = {c for p in ordered for c in p.case.clauses}
    quick = sorted(ordered, key=lambda p: (known_to_hang(p, known), _size(p), -_variety(p)))
    for p in quick:
        new = open_clauses & set(p.case.clauses)
        if new:
            found.append(p)
            open_clauses -= new
    return found


def _in_turns(ordered: Sequence[Planned], first: Sequence[Planned]) -> list[Planned]:
    """Each case that is not among the first where the fewest of them are so far."""
    taken = {(p.group, p.case.name, p.kind) for p in first}
    load = Counter(p.topology for p in first if p.kind in {q.kind for q in ordered})
    places: dict[tuple[str, str, Kind], list[Planned]] = {}
    for p in ordered:
        places.setdefault((p.group, p.case.name, p.kind), []).append(p)
    kept = []
    for case, same in places.items():
        if case not in taken:
            kept.append(min(same, key=lambda p: load[p.topology]))
            load[kept[-1].topology] += 1
    return kept


def _per_topology(ordered: Sequence[Planned], known: Known) -> list[Planned]:
    places = dict.fromkeys((p.topology, p.kind) for p in ordered)
    return [
        p
        for topology, kind in places
        for p in _covering([q for q in ordered if (q.topology, q.kind) == (topology, kind)], known)
    ]
