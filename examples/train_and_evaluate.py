"""Training under Ray Train's JaxTrainer, and an evaluation whose metrics are exact.

    python examples/train_and_evaluate.py --topology 4x4 --version v6e --workers 4  # on a TPU slice
    python examples/train_and_evaluate.py --fake --workers 2                        # on any machine

Training drops what does not fill a batch on every worker. An evaluation must not: it pads instead,
and the mask column keeps the padding out of every sum. So each row of the evaluation counts once,
however uneven the workers' shards are.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.train
from ray.train.v2.jax import JaxConfig, JaxTrainer

import jaxiter

FEATURES = 8
BATCH_SIZE = 16  # rows of each worker
LEARNING_RATE = 0.5


def make(ids: np.ndarray) -> dict[str, np.ndarray]:
    """Make rows: features, and a label that follows from them but for some noise."""
    x = np.sin(np.outer(ids + 1, np.arange(1, FEATURES + 1))).astype(np.float32)
    label = (x @ np.linspace(-2, 2, FEATURES) + 0.3 * np.cos(ids) > 0).astype(np.int32)
    return {"x": x, "label": label}


def read(first: int, rows: int) -> Any:
    """Make a dataset. A real program would read files."""
    numbers = ray.data.range(rows, override_num_blocks=5)
    return numbers.map_batches(lambda batch: make(batch["id"] + first))


class KeepAllRows(ray.train.DataConfig):  # type: ignore[misc]
    """Splits without dropping rows to make shards equal, as Ray Train does by default."""

    def configure(
        self, datasets: dict[str, Any], world_size: int, *_: Any, **__: Any
    ) -> list[dict[str, Any]]:
        """Give each worker its part of each dataset."""
        parts = {
            name: data.streaming_split(world_size, equal=False) for name, data in datasets.items()
        }
        return [
            {name: split[worker] for name, split in parts.items()} for worker in range(world_size)
        ]


def loop(config: dict[str, Any]) -> None:
    """What each worker runs."""
    import jax
    import jax.numpy as jnp

    def logits(model: dict[str, Any], x: jax.Array) -> jax.Array:
        return jnp.asarray(x @ model["weight"] + model["bias"])

    def loss(model: dict[str, Any], batch: dict[str, jax.Array]) -> jax.Array:
        margin = logits(model, batch["x"]) * (2 * batch["label"] - 1)
        return jnp.mean(jnp.logaddexp(0, -margin))

    @jax.jit
    def step(model: dict[str, Any], batch: dict[str, jax.Array]) -> dict[str, Any]:
        slope = jax.grad(loss)(model, batch)
        return {name: value - LEARNING_RATE * slope[name] for name, value in model.items()}

    @jax.jit
    def score(model: dict[str, Any], batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        right = (logits(model, batch["x"]) > 0) == (batch["label"] == 1)
        return jnp.sum(right & batch["real"]), jnp.sum(batch["real"])

    model: dict[str, Any] = {
        "weight": np.zeros(FEATURES, np.float32),
        "bias": np.zeros((), np.float32),
    }
    train = jaxiter.iter_jax_batches(
        ray.train.get_dataset_shard("train"), batch_size=BATCH_SIZE, drop_last=True
    )
    steps = 0
    for _ in range(config["epochs"]):
        for batch in train:
            model = step(model, batch)
            steps += 1
    right = rows = 0
    evaluation = jaxiter.iter_jax_batches(
        ray.train.get_dataset_shard("evaluation"),
        batch_size=BATCH_SIZE,
        paddings=0,
        mask_column="real",
    )
    for batch in evaluation:
        here, of = score(model, batch)
        right, rows = right + int(here), rows + int(of)
    found = {name: np.asarray(value).tolist() for name, value in model.items()}
    metrics = {"steps": steps, "right": right, "rows": rows, "model": found}
    if ray.train.get_context().get_world_rank() == 0:
        # Ray Train keeps metrics only beside a checkpoint.
        Path(config["storage"], "metrics.json").write_text(json.dumps(metrics))


def train(options: argparse.Namespace, storage: str) -> dict[str, Any]:
    """Train and evaluate on the cluster that this process is connected to; gives the metrics."""
    if options.fake:
        scaling = ray.train.ScalingConfig(num_workers=options.workers)
        env = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
    else:
        scaling = ray.train.ScalingConfig(
            num_workers=options.workers,
            use_tpu=True,
            topology=options.topology,
            accelerator_type=f"TPU-{options.version.upper()}",
        )
        env = {}
    trainer = JaxTrainer(
        loop,
        train_loop_config={"epochs": options.epochs, "storage": storage},
        # Without use_tpu JaxTrainer leaves jax.distributed alone; JAX_PLATFORMS says what it is.
        jax_config=JaxConfig(use_tpu=True),
        scaling_config=scaling,
        datasets={"train": read(0, options.rows), "evaluation": read(options.rows, options.rows)},
        dataset_config=KeepAllRows(),
        run_config=ray.train.RunConfig(storage_path=storage, worker_runtime_env={"env_vars": env}),
    )
    trainer.fit()
    return dict(json.loads(Path(storage, "metrics.json").read_text()))


def main() -> None:
    """Train, evaluate, and print the metrics."""
    parser = argparse.ArgumentParser(description="Train under JaxTrainer; evaluate all rows.")
    parser.add_argument("--workers", type=int, default=4, help="one a host (default: %(default)s)")
    parser.add_argument("--topology", default="4x4", help="of the slice (default: %(default)s)")
    parser.add_argument("--version", default="v6e", help="of the chips (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=333, help="of each dataset (%(default)s)")
    parser.add_argument("--epochs", type=int, default=2, help="of training (default: %(default)s)")
    parser.add_argument("--out", default="metrics.json", help="file (default: %(default)s)")
    parser.add_argument("--fake", action="store_true", help="CPU devices of this machine")
    options = parser.parse_args()
    runtime_env = {"py_modules": [jaxiter]}
    if options.fake:
        ray.init(num_cpus=options.workers + 2, include_dashboard=False, runtime_env=runtime_env)
    else:
        ray.init(address="auto", runtime_env=runtime_env)
    with tempfile.TemporaryDirectory() as storage:
        metrics = train(options, storage)
    ray.shutdown()
    Path(options.out).write_text(json.dumps(metrics))
    print(f"{metrics['steps']} steps; {metrics['right']} of {metrics['rows']} rows are right")


if __name__ == "__main__":
    main()
