"""Many batches on real processes: `python -m tests.jaxiter.soak --batches 10000`.

Memory, threads and keys of the coordination service must stay flat, within an epoch and over many.
"""

import argparse
import sys
from dataclasses import dataclass
from typing import Any

from harness import Gang, Returned

MOST_KEYS = 64 + 64 + 16  # two blocks of messages in flight, and what each process has besides


@dataclass(frozen=True)
class Reading:
    """What one process measured after some batches."""

    batches: int
    rss_mb: float
    keys: int
    threads: int
    file_descriptors: int


def soak(batches: int, epochs: int, readings: int) -> list[Reading]:
    """Run epochs of batches with a reduction each; runs on a rank."""
    import os
    import threading

    import jax.numpy as jnp
    import numpy as np
    import psutil

    import jaxiter
    from jaxiter.rendezvous import service

    store = service()
    assert store is not None
    process = psutil.Process()
    per_epoch = batches // epochs

    def source() -> Any:
        for number in range(per_epoch):
            yield {"x": np.full((64, 64), number, np.float32)}

    made = jaxiter.iter_jax_batches(source, batch_size=64, drop_last=True)
    taken = 0
    found = []
    for _ in range(epochs):
        for batch in made:
            value = float(jnp.mean(batch["x"]))
            assert value == taken % per_epoch
            taken += 1
            if taken % (batches // readings) == 0:
                found.append(
                    Reading(
                        taken,
                        process.memory_info().rss / 2**20,
                        len(store.list("jaxiter")),
                        threading.active_count(),
                        len(os.listdir("/proc/self/fd")),
                    )
                )
    return found


def growth(readings: list[Reading]) -> tuple[float, int, int, int]:
    """Return how much memory (MB), keys, threads and file descriptors grew after a warm-up."""
    settled = readings[len(readings) // 4 :]
    half = len(settled) // 2

    def most(name: str, part: list[Reading]) -> Any:
        return max(getattr(reading, name) for reading in part)

    early, late = settled[:half], settled[half:]
    return (
        most("rss_mb", late) - most("rss_mb", early),
        most("keys", late) - most("keys", early),
        most("threads", late) - most("threads", early),
        most("file_descriptors", late) - most("file_descriptors", early),
    )


def run(gang: Gang, batches: int, epochs: int, readings: int) -> list[list[Reading]]:
    """Soak on a gang; the readings of each process."""
    outcomes = gang.run(soak, batches, epochs, readings, deadline_s=batches * 0.05 + 60)
    for outcome in outcomes:
        assert isinstance(outcome, Returned), outcome.describe()
    return [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]


def main() -> int:
    """Soak from the command line; 0 if nothing grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    failed = 0
    with Gang(processes=arguments.processes, devices_per_process=2) as gang:
        every = run(gang, arguments.batches, arguments.epochs, 40)
    for process, readings in enumerate(every):
        for reading in readings[:: len(readings) // 8]:
            print(f"process {process}: {reading}")
        grown = growth(readings)
        most_keys = max(reading.keys for reading in readings)
        print(
            f"process {process}: grew by {grown[0]:.1f} MB, {grown[1]} keys, {grown[2]} threads, "
            f"{grown[3]} file descriptors; at most {most_keys} keys"
        )
        failed |= grown[0] > 8 or most_keys > MOST_KEYS or grown[2] > 0 or grown[3] > 2
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
