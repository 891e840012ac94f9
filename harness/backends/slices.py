"""TPU slices in words: the shape that is asked for, and what a cluster has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ray.util.tpu import get_tpu_version_from_type, get_tpu_worker_resources

from harness.backends import GangStartError

SLICE_NAME = "ray.io/tpu-slice-name"
WORKER_ID = "ray.io/tpu-worker-id"
POD_TYPE = "ray.io/tpu-pod-type"
TOPOLOGY = "ray.io/tpu-topology"


class NoSliceError(GangStartError):
    """The cluster lacks the slices asked for; the text says what it has."""


@dataclass(frozen=True)
class SliceShape:
    """The slices that are asked for.

    Attributes:
        topology: chips along each axis of one slice, such as "4x4".
        version: generation of the chips, such as "v6e".
        slices: number of slices.

    Raises:
        ValueError: Ray knows no such slice, or the number is below 1.
    """

    topology: str
    version: str
    slices: int = 1

    def __post_init__(self) -> None:
        from ray._private.accelerators.tpu import VALID_TPU_TOPOLOGY

        if not isinstance(self.slices, int) or self.slices < 1:
            raise ValueError(f"slices must be a whole number of 1 or more, not {self.slices!r}")
        if self.version not in VALID_TPU_TOPOLOGY:
            raise ValueError(
                f"version must be one of {', '.join(VALID_TPU_TOPOLOGY)}, not {self.version!r}"
            )
        known = VALID_TPU_TOPOLOGY[self.version]
        if self.topology not in known:
            raise ValueError(
                f"topology {self.topology!r} is none that {self.version} has: "
                f"{', '.join(sorted(known, key=_size)[:12])} and larger ones"
            )

    def __str__(self) -> str:
        return f"{self.slices} x {self.version} {self.topology}"

    @property
    def pod_type(self) -> str:
        """What Ray calls one such slice, such as "v6e-16"."""
        from ray._private.accelerators.tpu import infer_tpu_pod_type_from_topology

        return str(infer_tpu_pod_type_from_topology(self.topology, f"TPU-{self.version.upper()}"))

    @property
    def hosts(self) -> int:
        """Number of hosts of all slices."""
        return self._workers()[0]

    @property
    def chips_per_host(self) -> int:
        """Number of chips of one host."""
        return int(self._workers()[1]["TPU"])

    def _workers(self) -> tuple[int, dict[str, float]]:
        kind = get_tpu_version_from_type(self.version)
        count, resources = get_tpu_worker_resources(self.topology, kind, num_slices=self.slices)
        return int(count), dict(resources)


def _size(topology: str) -> tuple[int, str]:
    chips = 1
    for side in topology.split("x"):
        chips *= int(side)
    return chips, topology


def describe_tpus(
    nodes: Iterable[Mapping[str, Any]], free: Mapping[str, Mapping[str, float]]
) -> str:
    """Say which TPU slices a cluster has, and how many of their chips are free.

    Args:
        nodes: what `ray.nodes()` gives.
        free: for each node id, the resources that nobody uses.
    """
    alive = [node for node in nodes if node.get("Alive")]
    slices: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for node in alive:
        if not node.get("Resources", {}).get("TPU"):
            continue
        labels = node.get("Labels") or {}
        name = labels.get(SLICE_NAME) or f"node {node['NodeID'][:8]}"
        shape = (labels.get(POD_TYPE) or "of unknown type", labels.get(TOPOLOGY) or "unknown")
        slices.setdefault((name, *shape), []).append(node)
    if not slices:
        names = sorted({name for node in alive for name in _shown(node.get("Resources", {}))})
        return f"the cluster has no TPU: {len(alive)} nodes with {', '.join(names) or 'nothing'}"
    lines = []
    for (name, kind, topology), members in sorted(slices.items()):
        chips = sum(node["Resources"]["TPU"] for node in members)
        unused = sum(free.get(node["NodeID"], {}).get("TPU", 0.0) for node in members)
        heads = "" if any(_is_head(node) for node in members) else ", no worker 0"
        lines.append(
            f"  {name}: {kind}, topology {topology}, hosts: {len(members)}, "
            f"chips: {chips:g}, free: {unused:g}{heads}"
        )
    return "the cluster has\n" + "\n".join(lines)


def _is_head(node: Mapping[str, Any]) -> bool:
    labels = node.get("Labels") or {}
    return str(labels.get(WORKER_ID, "0")) == "0"


def _shown(resources: Mapping[str, float]) -> list[str]:
    """Resources that say what a node is, without its address and its memory."""
    hidden = ("node:", "memory", "object_store_memory")
    return [name for name in resources if not name.startswith(hidden)]
