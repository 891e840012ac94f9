"""What is known of a subject: entries of ``conformance/known/*.toml``, read and matched. Pure.

A file speaks of one subject and a range of its versions, because releases that differ in nothing
that the suite sees would otherwise need copies of one another. Its name holds the first of them:
``ray-2.56.toml``.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from conformance.clauses import clauses
from conformance.model import Kind, Topology

DIRECTORY = Path(__file__).parents[1] / "conformance" / "known"

#: What a case may be known for. ``lacks``: the subject has no argument for it. ``pass`` stands only
#: beside another, where timing decides.
Wrong = Literal["fail", "hang", "crash", "undecided", "lacks"]
Outcome = Literal[Wrong, "pass"]


class KnownError(ValueError):
    """A file of known results that cannot be used; the message names file, entry and field."""


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"{text!r} is no range such as '>=2.56,<2.61' or '==3'") from error
    return text


def _clause(text: str) -> str:
    if text not in clauses():
        raise ValueError(f"SPEC.md has no clause {text!r}")
    return text


def _link(text: str) -> str:
    if not text.startswith("https://"):
        raise ValueError(f"{text!r} does not begin with https://")
    return text


Range = Annotated[str, AfterValidator(_specifier)]
Text = Annotated[str, Field(min_length=1)]


class Entry(BaseModel):
    """One thing that is known: cases of a clause that end otherwise than they should.

    Ranges are written as of versions (``>=3``) and empty for any: ``ray`` and ``jax`` of releases,
    ``processes`` and ``devices`` of a topology. ``sources`` is the kind of source, or empty.
    ``cases`` are names with ``*`` for any letters. Several ``outcomes``: each is as expected.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    clause: Annotated[str, AfterValidator(_clause)]
    outcome: Wrong | Annotated[tuple[Outcome, ...], Field(min_length=2)]
    reason: Text
    link: Annotated[str, AfterValidator(_link)]
    cases: Annotated[tuple[Text, ...], Field(min_length=1)] = ("*",)
    ray: Range = ""
    jax: Range = ""
    processes: Range = ""
    devices: Range = ""
    sources: Literal["", "memory", "ray"] = ""

    @property
    def outcomes(self) -> tuple[str, ...]:
        """All outcomes that are as expected."""
        return (self.outcome,) if isinstance(self.outcome, str) else self.outcome

    def is_in(self, topology: Topology, kind: Kind) -> bool:
        """Whether it speaks of this topology and kind of source."""
        return (
            _within(str(topology.processes), self.processes)
            and _within(str(topology.devices), self.devices)
            and self.sources in ("", kind)
        )

    def is_of(self, versions: Mapping[str, str]) -> bool:
        """Whether it speaks of these releases of Ray and JAX."""
        return all(_within(versions.get(n, ""), getattr(self, n)) for n in ("ray", "jax"))

    def names(self, clause: str, case: str) -> bool:
        """Whether it speaks of this case's say on this clause."""
        return clause == self.clause and any(fnmatch.fnmatchcase(case, p) for p in self.cases)

    def __str__(self) -> str:
        where = [f"{n} {v}" for n in ("ray", "jax", "processes", "devices") if (v := self._of(n))]
        where += [f"sources {self.sources}"] if self.sources else []
        cases = "" if self.cases == ("*",) else f", cases {', '.join(self.cases)}"
        return (
            f"{self.clause} {' or '.join(self.outcomes)}{cases}{''.join(f', {w}' for w in where)}"
        )

    def _of(self, name: str) -> str:
        return str(getattr(self, name))


def _within(version: str, wanted: str) -> bool:
    if not wanted:
        return True
    try:
        return SpecifierSet(wanted).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


class KnownFile(BaseModel):
    """One file: a ``subject``, the ``versions`` of it that it speaks of, and its entries."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: Text
    versions: Range
    known: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Known:
    """What is known of one version of a subject; ``note`` says where it is from, in words."""

    entries: tuple[Entry, ...] = ()
    note: str = "nothing is known of this subject: every clause is expected to pass"

    def entry_for(self, clause: str, case: str, topology: Topology, kind: Kind) -> Entry | None:
        """The first entry that speaks of this case's say on this clause."""
        found = (e for e in self.entries if e.names(clause, case) and e.is_in(topology, kind))
        return next(found, None)


def read(path: Path) -> KnownFile:
    """Read one file. Raises KnownError, which names the file, the entry and the field."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        return KnownFile.model_validate(values)
    except ValidationError as error:
        raise KnownError("\n".join(_words(path.name, values, error))) from error
    except (OSError, ValueError) as error:
        raise KnownError(f"{path.name}: cannot be read: {error}") from error


#: What a field may hold that has more than one form: each form has a complaint of its own.
_FORMS = {
    "outcome": "give one of fail, hang, crash, undecided, lacks, or a list of two or more of "
    "these and pass",
}


def _words(name: str, values: Mapping[str, object], error: ValidationError) -> Iterable[str]:
    told = set()
    for found in error.errors():
        place = found["loc"]
        if found["type"] != "missing" and len(place) > 2 and (form := _FORMS.get(str(place[2]))):
            if place[:3] in told:
                continue
            told.add(place[:3])
            given = values["known"][int(place[1])][place[2]]  # type: ignore[index]
            found = {**found, "loc": place[:3], "msg": form, "input": given}  # noqa: PLW2901
        entry, field = "", str(place[0])
        if place[0] == "known" and len(place) > 1:
            number = int(place[1])
            raw = values["known"][number]  # type: ignore[index]
            clause = raw.get("clause", "no clause") if isinstance(raw, dict) else "no table"
            entry = f" entry {number + 1} ({clause}):"
            field = str(place[2]) if len(place) > 2 else "known"
        given = "" if found["type"] == "missing" else f" (given: {found['input']!r})"
        yield f"{name}:{entry} field {field!r}: {found['msg']}{given}"


def known_of(
    subject: str,
    version: str,
    versions: Mapping[str, str],
    directory: Path = DIRECTORY,
) -> Known:
    """What is known of ``version`` of a subject, with ``versions`` of Ray and JAX.

    A version that no file speaks of is compared with the file of the nearest version before it, so
    that a nightly release shows what it changes. Raises KnownError for a file that cannot be used,
    or for two that speak of the same version.
    """
    stem = subject.replace(":", ".")
    files = {p.name: read(p) for p in sorted(directory.glob("*.toml"))}
    own = {n: f for n, f in files.items() if f.subject == subject}
    for name in own:
        if not name.startswith(f"{stem}-"):
            raise KnownError(
                f"{name}: field 'subject': {subject!r} wants the name {stem}-<version>"
            )
    if not own:
        return Known()
    speaking = [n for n, f in own.items() if _within(version, f.versions)]
    if len(speaking) > 1:
        raise KnownError(f"{', '.join(speaking)}: each speaks of {subject} {version}; one must")
    if speaking:
        return _known(own[speaking[0]], versions, f"known results of {speaking[0]}")
    nearest = _nearest(list(own), version)
    if nearest is None:
        return Known(
            note=f"no file of known results speaks of {subject} {version} or one before it"
        )
    words = f"no file speaks of {subject} {version}; compared with {nearest}, the nearest before it"
    return _known(own[nearest], versions, words)


def _known(file: KnownFile, versions: Mapping[str, str], note: str) -> Known:
    return Known(tuple(e for e in file.known if e.is_of(versions)), note)


def _nearest(names: Sequence[str], version: str) -> str | None:
    """The file whose name holds the highest version that is not above ``version``."""
    try:
        wanted = Version(version)
        dated = [(Version(Path(n).stem.rpartition("-")[2]), n) for n in names]
    except InvalidVersion:
        return None
    return max(((v, n) for v, n in dated if v <= wanted), default=(None, None))[1]
