"""Shardings of cases, by name, over all devices of a topology."""

from __future__ import annotations

from typing import Any

from conformance.model import Topology

NAMES = ("data_model", "two_axes", "replicated")


def row_shards(name: str, t: Topology) -> int:
    """How many processes' worth of rows a global batch holds."""
    return 1 if name == "replicated" else t.processes


def row_divisor(name: str, t: Topology) -> int:
    """What ``batch_size`` must divide by: the row shards of one process."""
    return 1 if name == "data_model" else t.devices


def make(name: str) -> Any:
    """The sharding, on a rank. Rows are split over the mesh axes that ``PartitionSpec`` names."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = sorted(jax.devices(), key=lambda d: (d.process_index, d.id))
    grid = np.array(devices).reshape(jax.process_count(), -1)
    match name:
        case "data_model":
            return NamedSharding(Mesh(grid, ("data", "model")), PartitionSpec("data"))
        case "two_axes":
            return NamedSharding(Mesh(grid, ("host", "chip")), PartitionSpec(("host", "chip")))
        case "replicated":
            return NamedSharding(Mesh(grid.T, ("data", "copy")), PartitionSpec("data"))
    raise ValueError(f"sharding {name!r}: give one of {NAMES}")
