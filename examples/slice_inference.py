"""Inference on TPU slices: an actor a host, uneven shards, predictions on the driver.

    python examples/slice_inference.py --topology 4x4 --version v6e  # where a cluster has it
    python examples/slice_inference.py --fake                        # on any machine

The rows do not divide by hosts and batches, and nobody needs to care: with `paddings` every process
runs the same number of steps, and the mask says which rows are real.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import tempfile
from typing import Any

import numpy as np
import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from ray.util.tpu import get_tpu_coordinator_env_vars, slice_placement_group

import jaxiter

FEATURES = 8
BATCH_SIZE = 32  # rows of each process


def features(ids: np.ndarray) -> np.ndarray:
    """Make the features of rows: float32, rows by FEATURES."""
    return np.sin(np.outer(ids + 1, np.arange(1, FEATURES + 1))).astype(np.float32)


def weights() -> tuple[np.ndarray, np.float32]:
    """Give the model: a weight a feature, and a bias. A real program would load them."""
    return np.linspace(-2, 2, FEATURES, dtype=np.float32), np.float32(0.25)


def read(rows: int) -> Any:
    """Make the dataset. A real program would read files."""
    numbers = ray.data.range(rows, override_num_blocks=7)
    return numbers.map_batches(lambda batch: {"id": batch["id"], "x": features(batch["id"])})


class Host:
    """One process on one host of a slice."""

    def where(self) -> tuple[int, str]:
        """Give the host's number in its slice, and its address."""
        labels = ray.get_runtime_context().get_node_labels()
        return int(labels.get("ray.io/tpu-worker-id", 0)), ray.util.get_node_ip_address()

    def hold_port(self) -> int:
        """Give a port for JAX's coordinator, kept from others until this process ends."""
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._held.bind(("", 0))
        return int(self._held.getsockname()[1])

    def join(self, coordinator: str, processes: int, process: int, env: dict[str, str]) -> int:
        """Become one process of the JAX program; gives the number of devices of all."""
        os.environ.update(env)
        import jax

        jax.distributed.initialize(coordinator, processes, process)
        return jax.device_count()

    def predict(self, shard: Any) -> dict[str, np.ndarray]:
        """Predict this process's rows, in steps that all processes run together."""
        import jax

        weight, bias = weights()

        @jax.jit
        def model(x: jax.Array) -> jax.Array:
            return jax.nn.sigmoid(x @ weight + bias)

        found: dict[str, list[np.ndarray]] = {"id": [], "probability": []}
        batches = jaxiter.iter_jax_batches(
            shard,
            batch_size=BATCH_SIZE,
            dtypes={"id": "int32", "x": "float32"},
            paddings=0,
            mask_column="real",
        )
        for batch in batches:
            real = own_rows(batch["real"])
            found["id"].append(own_rows(batch["id"])[real])
            found["probability"].append(own_rows(model(batch["x"]))[real])
        return {name: np.concatenate(parts or [np.zeros(0)]) for name, parts in found.items()}


def own_rows(array: Any) -> np.ndarray:
    """Give this process's rows of a global array, in their order."""
    shards = {shard.index[0].start or 0: shard.data for shard in array.addressable_shards}
    return np.concatenate([np.asarray(shards[start]) for start in sorted(shards)])


def start_hosts(group: Any, chips: int, *, fake: bool) -> list[Any]:
    """Start an actor on each host, ordered as JAX numbers the processes of slices."""
    env = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(chips)} if fake else {}
    actor = ray.remote(Host)
    hosts = [
        actor.options(
            num_cpus=group.bundle_resources["CPU"],
            resources={"TPU": group.bundle_resources["TPU"]},
            runtime_env={"env_vars": env},
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                group.placement_group, placement_group_bundle_index=bundle
            ),
        ).remote()
        for bundle in range(group.num_bundles)
    ]
    # Bundles come slice by slice; within one, Ray places them in any order.
    each = len(hosts) // group.num_slices
    places = ray.get([host.where.remote() for host in hosts])
    order = sorted(range(len(hosts)), key=lambda bundle: (bundle // each, places[bundle][0]))
    hosts = [hosts[bundle] for bundle in order]
    address = places[order[0]][1]
    port = ray.get(hosts[0].hold_port.remote())
    joined = []
    for process, host in enumerate(hosts):
        several = {}
        if group.num_slices > 1:
            several = get_tpu_coordinator_env_vars(address, group.num_slices, process // each)
        joined.append(host.join.remote(f"{address}:{port}", len(hosts), process, several))
    print(f"{len(hosts)} processes, {ray.get(joined)[0]} devices")
    return hosts


def predict(rows: int, topology: str, version: str, slices: int, *, fake: bool) -> dict[str, Any]:
    """Reserve the slices, predict all rows, and give them in the order of their ids."""
    group = slice_placement_group(topology, version, num_slices=slices)
    try:
        ray.get(group.placement_group.ready(), timeout=300)
        hosts = start_hosts(group, group.devices_per_host, fake=fake)
        shards = read(rows).streaming_split(len(hosts), equal=False)
        parts = ray.get([h.predict.remote(s) for h, s in zip(hosts, shards, strict=True)])
    finally:
        group.shutdown()
    print("rows of each process:", [len(part["id"]) for part in parts])
    order = np.argsort(np.concatenate([part["id"] for part in parts]))
    return {name: np.concatenate([p[name] for p in parts])[order] for name in parts[0]}


def main() -> None:
    """Predict, and write the predictions to a file."""
    parser = argparse.ArgumentParser(description="Logistic regression on TPU slices.")
    parser.add_argument("--topology", default="4x4", help="of a slice (default: %(default)s)")
    parser.add_argument("--version", default="v6e", help="of the chips (default: %(default)s)")
    parser.add_argument("--slices", type=int, default=1, help="number (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=1003, help="to predict (default: %(default)s)")
    parser.add_argument("--out", default="predictions.npz", help="file (default: %(default)s)")
    parser.add_argument("--fake", action="store_true", help="CPU devices, as if it had the slices")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        job: dict[str, Any] = {"runtime_env": {"py_modules": [jaxiter]}, "address": "auto"}
        if options.fake:
            from harness.backends.fake_slice import FakeSlices
            from harness.backends.slices import SliceShape

            shape = SliceShape(options.topology, options.version, options.slices)
            job["address"] = stack.enter_context(FakeSlices(shape)).address
        # The hosts get what they import from here, not from a checkout.
        job["runtime_env"]["working_dir"] = stack.enter_context(tempfile.TemporaryDirectory())
        ray.init(**job)
        stack.callback(ray.shutdown)
        found = predict(
            options.rows, options.topology, options.version, options.slices, fake=options.fake
        )
    np.savez(options.out, **found)
    print(f"{len(found['id'])} predictions in {options.out}")


if __name__ == "__main__":
    main()
