"""What a run took place in: versions, machine, topologies."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.model import Kind, Topology

#: What a verdict may depend on.
PACKAGES = ("jax", "jaxlib", "numpy", "ray")
_GIT_LIMIT_S = 10.0


def versions() -> dict[str, str]:
    """The versions that are installed: of Python, and of each of ``PACKAGES`` or "none"."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


@functools.cache  # that of the start, and not of what is edited meanwhile
def commit() -> str:
    """The commit of this checkout, with "and changes" where files differ; else in words why not."""
    try:
        found = [
            subprocess.run(
                ["git", "-C", str(Path(__file__).parent), *words],
                capture_output=True,
                text=True,
                check=True,
                timeout=_GIT_LIMIT_S,
            ).stdout.strip()
            for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "-uno"))
        ]
    except (OSError, subprocess.SubprocessError):
        return "no commit that git could tell"
    return f"commit {found[0]}{' and changes' if found[1] else ''}"


def environment(
    topologies: Sequence[Topology], kinds: Sequence[Kind], level: str
) -> dict[str, Any]:
    """What a report says of a run beside its verdicts, as JSON values."""
    return {
        "versions": versions(),
        "commit": commit(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "processes": sorted({t.processes for t in topologies}),
        "devices": sorted({t.devices for t in topologies}),
        "sources": list(kinds),
        "level": level,
        "seed": "none, every case is fixed",
    }


def again(subject: str, backend: str = "local") -> str:
    """What runs one case again, with places for its ``nodeid``, ``processes`` and ``devices``.

    It can be pasted where the run was started: with the same interpreter, and with the path on
    which a subject from elsewhere was found.
    """
    words = [interpreter(), "-m", "pytest"]
    path = os.environ.get("PYTHONPATH", "").strip(os.pathsep)
    if ":" in subject and path:
        words.insert(0, f"PYTHONPATH={shlex.quote(path)}")
    words += ["'{nodeid}'", "--subject", shlex.quote(subject)]
    if backend != "local":
        words += ["--backend", shlex.quote(backend)]
    return " ".join([*words, "--processes {processes} --devices {devices}"])


def interpreter() -> str:
    """This interpreter, as seen from the working directory if it is below it."""
    path = Path(sys.executable)
    below = path.is_relative_to(Path.cwd())
    return shlex.quote(str(path.relative_to(Path.cwd()) if below else path))
