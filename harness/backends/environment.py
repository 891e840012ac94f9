"""The environment that ranks start with, whatever starts them."""

from __future__ import annotations

import os
import sys

from harness.backends import Topology

_DEVICE_COUNT_FLAG = "--xla_force_host_platform_device_count"


def overrides(topology: Topology, mark: tuple[str, str]) -> dict[str, str]:
    """Environment variables in which a rank differs from its parent."""
    # This flag would contradict jax_num_cpu_devices.
    flags = os.environ.get("XLA_FLAGS", "").split()
    kept = [flag for flag in flags if not flag.startswith(_DEVICE_COUNT_FLAG)]
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": " ".join(kept),
        **topology.env,
        mark[0]: mark[1],
    }


def import_path() -> list[str]:
    """Where this process finds modules, as absolute paths."""
    return [os.path.abspath(entry) for entry in sys.path]
