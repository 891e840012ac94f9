"""The environment that ranks start with, whatever starts them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import harness
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


def shipped(
    code: Sequence[str | ModuleType] = (), runtime_env: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Give the `runtime_env` of a job whose ranks need this package, and `code`.

    Args:
        code: packages, or paths of packages and of single modules.
        runtime_env: what else is wanted; its own `py_modules` are kept.
    """
    wanted = dict(runtime_env or {})
    own = [harness, *code]
    paths = [_path_of(each) if isinstance(each, ModuleType) else str(each) for each in own]
    modules = [*wanted.get("py_modules", []), *paths]
    return {**wanted, "py_modules": list(dict.fromkeys(modules))}


def _path_of(module: ModuleType) -> str:
    if hasattr(module, "__path__"):
        return str(next(iter(module.__path__)))
    assert module.__file__ is not None
    return module.__file__
