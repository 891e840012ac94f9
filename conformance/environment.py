"""What a run took place in: versions, machine, topologies."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from typing import Any

from conformance.model import Kind, Topology

#: What a verdict may depend on.
PACKAGES = ("jax", "jaxlib", "numpy", "ray")


def versions() -> dict[str, str]:
    """The versions that are installed: of Python, and of each of ``PACKAGES`` or "none"."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def environment(
    topologies: Sequence[Topology], kinds: Sequence[Kind], level: str
) -> dict[str, Any]:
    """What a report says of a run beside its verdicts, as JSON values."""
    return {
        "versions": versions(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "processes": sorted({t.processes for t in topologies}),
        "devices": sorted({t.devices for t in topologies}),
        "sources": list(kinds),
        "level": level,
        "seed": "none, every case is fixed",
    }
