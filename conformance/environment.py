"""What a run took place in: versions, machine, topologies."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
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


def again(subject: str) -> str:
    """What runs one case again, with places for its ``nodeid``, ``processes`` and ``devices``.

    It can be pasted where the run was started: with the same interpreter, and with the path on
    which a subject from elsewhere was found.
    """
    words = [interpreter(), "-m", "pytest"]
    path = os.environ.get("PYTHONPATH", "").strip(os.pathsep)
    if ":" in subject and path:
        words.insert(0, f"PYTHONPATH={shlex.quote(path)}")
    words += ["'{nodeid}'", "--subject", shlex.quote(subject)]
    return " ".join([*words, "--processes {processes} --devices {devices}"])


def interpreter() -> str:
    """This interpreter, as seen from the working directory if it is below it."""
    path = Path(sys.executable)
    below = path.is_relative_to(Path.cwd())
    return shlex.quote(str(path.relative_to(Path.cwd()) if below else path))
