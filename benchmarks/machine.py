"""The state of the machine: figures mean nothing without it."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = ("jax", "jaxlib", "numpy", "ray", "grain", "pyarrow")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def machine_state() -> dict[str, Any]:
    """Return what the figures depend on: cores, load, memory, governor, versions."""
    frequency = psutil.cpu_freq()
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "mhz": round(frequency.current) if frequency else None,
        "governor": _GOVERNOR.read_text().strip() if _GOVERNOR.exists() else "unknown",
        "load_1_5_15_min": [round(load, 2) for load in os.getloadavg()],
        "memory_free_gib": round(psutil.virtual_memory().available / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
