"""Makes this process one of a `jax.distributed` session on CPU devices, and warms it up."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.rank import This

# The gang has a watchdog of its own. JAX's must not end a rank while the gang still looks at it.
NEVER_S = 7 * 24 * 3600


def start(
    this: This, coordinator: str | None, jax_config: Mapping[str, Any], start_timeout_s: float
) -> None:
    """Initialise JAX in this process; returns when all processes have run a collective.

    Args:
        this: which process this is.
        coordinator: address of process 0's coordination service, as JAX takes it; `None` where
            this process is one of a session already.
        jax_config: options that win over the ones set here.
        start_timeout_s: how long to wait for the other processes.

    Raises:
        RuntimeError: JAX gives this process another number, or other devices, than asked for.
    """
    import jax

    settings: dict[str, Any] = {
        "jax_platforms": "cpu",
        "jax_num_cpu_devices": this.devices_per_process,
        "jax_cpu_collectives_implementation": "gloo",
        # Survivors of a death live on until the gang has judged them.
        "jax_enable_recoverability": True,
    }
    for name, value in {**settings, **jax_config}.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call, unused-ignore]
    if coordinator is not None:
        _initialize(this, coordinator, start_timeout_s)
    seen = (jax.process_index(), jax.process_count(), jax.local_device_count())
    if seen != (this.rank, this.processes, this.devices_per_process):
        raise RuntimeError(
            f"rank {this.rank} of {this.processes} with {this.devices_per_process} devices: JAX "
            f"says process {seen[0]} of {seen[1]} with {seen[2]} devices ({jax.default_backend()})"
        )
    _warm_up()


def _initialize(this: This, coordinator: str, start_timeout_s: float) -> None:
    import jax

    if this.rank > 0:
        _wait_for_socket(coordinator, start_timeout_s)
    arguments: dict[str, Any] = {
        "coordinator_address": coordinator,
        "num_processes": this.processes,
        "process_id": this.rank,
        "cluster_detection_method": "deactivate",
        "initialization_timeout": max(1, int(start_timeout_s)),
        "heartbeat_timeout_seconds": NEVER_S,
        "coordinator_bind_address": coordinator if coordinator.startswith("unix:") else None,
    }
    jax.distributed.initialize(**arguments)


def _wait_for_socket(coordinator: str, limit_s: float) -> None:
    # One that calls before process 0 listens tries again only after a second.
    scheme, _, path = coordinator.partition(":")
    deadline_s = time.monotonic() + limit_s
    while scheme == "unix" and not os.path.exists(path) and time.monotonic() < deadline_s:
        time.sleep(0.005)


def _warm_up() -> None:
    """Run a collective over each usual order of all devices, so that no case is the first to."""
    import jax
    from jax.experimental import mesh_utils

    spec: Any = jax.sharding.PartitionSpec
    default = jax.devices()
    mesh_order = list(mesh_utils.create_device_mesh((len(default),)))
    for devices in [mesh_order] if mesh_order == default else [mesh_order, default]:
        mesh = jax.sharding.Mesh(np.array(devices), ("data",))
        rows = jax.sharding.NamedSharding(mesh, spec("data"))
        everywhere = jax.sharding.NamedSharding(mesh, spec())
        ones = jax.make_array_from_callback(
            (len(devices),), rows, lambda _: np.ones((1,), np.float32)
        )
        total = jax.jit(lambda x: x.sum(), out_shardings=everywhere)(ones)
        if int(total) != len(devices):
            raise RuntimeError(f"a sum over {len(devices)} devices gave {total}")
