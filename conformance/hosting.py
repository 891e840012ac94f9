"""Where the processes of a run live: here, as Ray actors, on TPU slices, or in a trainer."""

from __future__ import annotations

import importlib.util
import sysconfig
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from conformance.model import Kind
from conformance.subjects import Subject
from harness.backends.slices import SliceShape

FORMS = "local, ray, jaxtrainer, tpu:TOPOLOGY:VERSION:SLICES or fake:TOPOLOGY:VERSION:SLICES"


class HostingError(ValueError):
    """The text does not say where processes are to live."""


@dataclass(frozen=True)
class Hosting:
    """Where processes live.

    Attributes:
        kind: `local` (Ray actors for sources on Ray, processes of this machine for those in
            memory), `ray`, `jaxtrainer`, `tpu`, or `fake` for slices that are not there.
        shape: the slices of the last two.
    """

    kind: str = "local"
    shape: SliceShape | None = None

    def __str__(self) -> str:
        if self.shape is None:
            return self.kind
        return f"{self.kind}:{self.shape.topology}:{self.shape.version}:{self.shape.slices}"

    def describe(self, kinds: Collection[Kind]) -> str:
        """Say where the processes are for sources of these kinds: on Ray, `local` is no answer."""
        if self.kind != "local" or "ray" not in kinds:
            return str(self)
        return f"{self}, as Ray actors{' for sources on Ray' if len(kinds) > 1 else ''}"


def parse(text: str) -> Hosting:
    """Read what `--backend` takes. Raises HostingError, with what may be given."""
    kind, *rest = text.split(":")
    if kind in ("local", "ray", "jaxtrainer") and not rest:
        return Hosting(kind)
    if kind not in ("tpu", "fake") or len(rest) != 3 or not rest[2].isdigit():
        raise HostingError(f"--backend {text!r}: give {FORMS}")
    try:
        return Hosting(kind, SliceShape(rest[0], rest[1], int(rest[2])))
    except ValueError as error:
        raise HostingError(f"--backend {text!r}: {error}") from error


def code_of(subject: Subject) -> list[str]:
    """Paths of what hosts without a checkout need to run the subject's cases."""
    modules = ["conformance", subject.target.partition(":")[0]]
    # What a subject of the suite's own stands on is part of this checkout too.
    modules += ["jaxiter"] if subject.target.startswith("conformance.") else []
    found = (path for name in modules if (path := _path(name.partition(".")[0])))
    return list(dict.fromkeys(found))


def _path(module: str) -> str:
    """The package's folder, or the module's file; empty if it is installed on hosts anyway."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        return ""
    folders = spec.submodule_search_locations
    path = next(iter(folders)) if folders else spec.origin or ""
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return "" if any(Path(path).is_relative_to(each) for each in installed) else str(path)
