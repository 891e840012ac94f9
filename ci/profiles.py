"""Named choices of topologies, sources and cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.model import Kind


@dataclass(frozen=True)
class Profile:
    """What runs unless the command line says otherwise.

    ``kinds`` that the subject does not read are passed over; if it reads none of them, those that
    it reads are taken. ``one_a_clause``: one case of each clause on each topology, not all.
    ``in_turns``: from sources of these kinds each case on one topology, in turns.
    ``workers``: topologies at once; all that reads from Ray is one.
    """

    processes: Sequence[int]
    devices: Sequence[int]
    kinds: Sequence[Kind]
    one_a_clause: bool = False
    in_turns: Sequence[Kind] = ()
    workers: int = 2


PROFILES = {
    "fast": Profile((2, 4), (1,), ("memory",), one_a_clause=True),
    "full": Profile((2, 3), (1, 2), ("memory", "ray"), in_turns=("ray",)),
    "whole": Profile((2, 3), (1, 2), ("memory", "ray")),
}
