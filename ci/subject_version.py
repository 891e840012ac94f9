"""Which version of a subject is judged."""

from __future__ import annotations

import importlib.metadata
import tomllib

from ci.suite import ROOT
from conformance.subjects import NAMED, Subject


def version_of(subject: Subject) -> str:
    """The release of the distribution that a subject is from; empty where it is from none."""
    if subject.name in NAMED:
        return _of_ray() if subject.name.startswith("ray") else _of_this()
    top = subject.target.partition(":")[0].partition(".")[0]
    names = importlib.metadata.packages_distributions().get(top, [])
    return importlib.metadata.version(names[0]) if names else ""


def _of_ray() -> str:
    return importlib.metadata.version("ray")


def _of_this() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])
