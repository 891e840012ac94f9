"""Wrong iterators, each as small as a real bug would be, by which the suite itself is tested.

`conformance.mutants:NAME` is a subject like any other:

    python -m pytest conformance --subject conformance.mutants:pad-first

Some were written with a clause in mind (`of_reference`, `of_jaxiter`); others are every edit of a
fixed list, at places that a hash chooses (`mechanical`), made without looking at the cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from conformance.mutants.loading import load
from conformance.mutants.tables import find
from conformance.subjects import Subject


def __getattr__(name: str) -> Callable[..., Iterable[Any]]:
    """Load the mutant of this name, so that it can run as a subject."""
    if name.startswith("_"):
        raise AttributeError(name)
    return load(find(name).edits)


def subject_of(name: str) -> Subject:
    """The mutant of this name as a subject."""
    module = find(name).edits[0].module.partition(".")[0]
    unchanged = "conformance.reference" if module == "conformance" else module
    target = f"{__name__}:{name}"
    return Subject(target, target, arguments=f"{unchanged}:iter_jax_batches")
