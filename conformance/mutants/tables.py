"""All mutants: those written with a clause in mind, and a sample of all mechanical edits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from conformance.mutants import of_jaxiter, of_reference
from conformance.mutants.edits import AnchorError, MechanicalEdit, mechanical_edits, source_of
from conformance.mutants.model import Mutant

NAMED: dict[str, Mutant] = {m.name: m for m in (*of_reference.MUTANTS, *of_jaxiter.MUTANTS)}

SEED = 5
#: One edit of so many is in the sample, by module: all that computes what a process delivers.
ONE_OF = {
    "conformance.reference": 2,
    **dict.fromkeys(
        (
            "jaxiter.agreement",
            "jaxiter.batches",
            "jaxiter.casting",
            "jaxiter.deciding",
            "jaxiter.hostbatch",
            "jaxiter.options",
            "jaxiter.padding",
            "jaxiter.pipeline",
            "jaxiter.placement",
            "jaxiter.protocol",
            "jaxiter.rebatch",
            "jaxiter.schema",
            "jaxiter.stages",
            "jaxiter.trees",
        ),
        25,
    ),
}


def sample(seed: int = SEED) -> Iterator[Mutant]:
    """The mechanical mutants of the sample.

    Whether an edit is in it depends on its name alone, so that it stays the same when other
    functions change.
    """
    for module, one_of in ONE_OF.items():
        for edit, _ in mechanical_edits(module, source_of(module)):
            digest = hashlib.blake2b(f"{seed}:{edit.name}".encode(), digest_size=8).digest()
            if int.from_bytes(digest, "big") % one_of == 0:
                yield Mutant(edit.name, "", (edit,))


def find(name: str) -> Mutant:
    """The mutant of this name; of mechanical ones, any, in the sample or not.

    Raises AnchorError when there is none.
    """
    if name in NAMED:
        return NAMED[name]
    return Mutant(name, "", (_mechanical(name),))


def _mechanical(name: str) -> MechanicalEdit:
    for module in ONE_OF:
        if name.startswith(f"{module.replace('.', '/')}/"):
            for edit, _ in mechanical_edits(module, source_of(module)):
                if edit.name == name:
                    return edit
    raise AnchorError(
        f"there is no mutant {name!r}: its code may have changed. `python -m "
        "conformance.kill_matrix --list` names all that there are"
    )
