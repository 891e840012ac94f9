"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.model import Kind
from conformance.mutants.edits import Edit


@dataclass(frozen=True)
class Mutant:
    """Code with edits that make it wrong.

    ``clause`` must not pass; it is empty for mechanical edits, which are made without a thought of
    any. ``origin`` is the public report, or the defect of Ray's iterator, that it copies; empty
    where it copies none. ``devices`` and ``kind`` are what its clause needs to tell.
    """

    name: str
    clause: str
    edits: tuple[Edit, ...]
    origin: str = ""
    devices: int = 1
    kind: Kind = "memory"
