"""What runs on the ranks: contestants in turns, one epoch at a time, all on the same rows."""

import contextlib
import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.cells import Cell
from benchmarks.contestants import CONTESTANTS, Contestant, Feed, digest, repeated
from benchmarks.works import WORKS
from harness import rank

_DIGESTED = 3  # batches of the first round that are looked into


@dataclass(frozen=True)
class Epoch:
    """One epoch of one contestant in one process.

    Attributes:
        contestant: Its name.
        batches: How many it delivered.
        total_s: Seconds from before `iter()` until the last batch is on the devices and used.
        first_s: Seconds until the first batch is on the devices.
        rest_s: Seconds from there on.
        wait_s: Of `rest_s`, seconds without a batch: in `next()`, and until its arrays are ready.
        peak_bytes: By how much the process's memory exceeded what it held before, at most.
    """

    contestant: str
    batches: int
    total_s: float
    first_s: float
    rest_s: float
    wait_s: float
    peak_bytes: int


def measure(
    source: Any, cell: Cell, contestants: Sequence[str], rounds: int
) -> dict[str, list[Any]]:
    """Let each contestant run one epoch a round; the order turns from round to round.

    Args:
        source: This process's Ray dataset; None for rows in memory.
        cell: What is measured.
        contestants: Their names.
        rounds: How many rounds count. One more runs first, short and unmeasured, in which batches
            are compared.

    Returns:
        `epochs`: an `Epoch`, as dict, for each contestant and round; `digests`: for each
        contestant, of its first batches.
    """
    work = WORKS[cell.work]
    process = rank.this().rank
    if source is None:
        rows = cell.rows_of(process, work.batch_size)
        source = repeated(work, process, rows, frozen=cell.source == "frozen")
    devices = mesh_utils.create_device_mesh((jax.device_count(),))
    sharding = NamedSharding(Mesh(devices, ("data",)), PartitionSpec("data"))
    feed = Feed(work, source, sharding)
    _meet(sharding)
    digests: list[Any] = []
    epochs: list[Any] = []
    for name in contestants:
        digests.append([name, _first_batches(CONTESTANTS[name], feed, cell)])
        _meet(sharding)
    for turn in range(rounds):
        shift = turn % len(contestants)
        for name in [*contestants[shift:], *contestants[:shift]]:
            gc.collect()
            _meet(sharding)
            epochs.append(asdict(_epoch(CONTESTANTS[name], feed, cell)))
            rank.record("epoch", contestant=name, round=turn)
    return {"epochs": epochs, "digests": digests}


def _first_batches(contestant: Contestant, feed: Feed, cell: Cell) -> list[list[float]]:
    """Run a whole epoch, so that all is compiled, and look into its first batches."""
    seen = []
    for k, batch in enumerate(contestant.open(feed)):
        if k < _DIGESTED:
            seen.append(digest(batch))
        if k < 2 and cell.has_step:
            _step(batch, 0.0)
        if k + 1 == cell.delivered or (contestant.name == "resident" and k + 1 == _DIGESTED):
            break
    return seen


def _epoch(contestant: Contestant, feed: Feed, cell: Cell) -> Epoch:
    step_s = cell.step_ms / 1000
    clock = time.perf_counter
    before = _memory()
    wait_s = first_s = 0.0
    batches = 0
    result = None
    began = asked = clock()
    iterator: Iterator[Any] = contestant.open(feed)
    first_at = began
    while contestant.name != "resident" or batches < cell.delivered:
        batch = next(iterator, None)
        if batch is None:
            break
        if contestant.is_jax and not cell.launches:
            jax.block_until_ready(batch)
        got = clock()
        if batches:
            wait_s += got - asked
        else:
            first_s, first_at = got - began, got
        batches += 1
        if cell.launches:
            result = _launched(batch)
        elif cell.step_ms:
            _step(batch, step_s)
        batch = None
        asked = clock()
    jax.block_until_ready(result)
    ended = clock()
    if batches != cell.delivered:
        raise RuntimeError(
            f"{contestant.name} delivered {batches} batches where {cell.delivered} were due"
        )
    peak = _peak() - before
    close = getattr(iterator, "close", None)
    if close is not None:
        close()
    return Epoch(
        contestant.name, batches, ended - began, first_s, ended - first_at, wait_s, max(0, peak)
    )


@jax.jit
def _reduced(leaf: jax.Array) -> jax.Array:
    """One sum over all processes, of one number a row."""
    return jnp.sum(leaf.reshape(len(leaf), -1)[:, 0].astype(jnp.float32))


def _step(batch: dict[str, jax.Array], step_s: float) -> None:
    """Wait as for an accelerator, without the CPU; then reduce over all processes."""
    time.sleep(step_s)
    _launched(batch).block_until_ready()


def _launched(batch: dict[str, jax.Array]) -> jax.Array:
    """Launch the reduction, as a loop does that looks at its results now and then."""
    result: jax.Array = _reduced(next(iter(batch.values())))
    return result


def _meet(sharding: NamedSharding) -> None:
    """Wait until all processes are here."""
    ones = np.ones((jax.local_device_count(),), np.float32)
    _reduced(jax.make_array_from_process_local_data(sharding, ones)).block_until_ready()


def _memory() -> int:
    """Begin a new peak, where the kernel lets us, and return the bytes resident now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return int(psutil.Process().memory_info().rss)


def _peak() -> int:
    """Return the most bytes that were resident since `_memory`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return int(psutil.Process().memory_info().rss)
