"""What the ranks of a gang do in the tests of the iterator."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxiter
from harness import rank


@dataclass
class Observed:
    """What one process saw of an epoch.

    Attributes:
        shapes: Global shape of column `x` in each batch.
        rows: This process's values of `x` in each batch, padding included.
        sums: A reduction over all processes of each batch, if the step makes one.
        error: Name of the error's class; empty at the regular end.
        again: Name of the class that a further `next()` raises.
    """

    shapes: list[tuple[int, ...]] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)
    error: str = ""
    message: str = ""
    process: int | None = None
    batch: int | None = None
    column: str | None = None
    cause: str = ""
    again: str = ""
    logs: list[str] = field(default_factory=list)
    stats: Any = None


class Logs(logging.Handler):
    """Collects what is logged, as 'LEVEL message'."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        self.lines.append(f"{record.levelname} {record.getMessage()}")


@contextmanager
def collected_logs() -> Iterator[list[str]]:
    """Collect what jaxiter logs meanwhile."""
    logs = Logs()
    logger = logging.getLogger("jaxiter")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(logs)
    try:
        yield logs.lines
    finally:
        logger.removeHandler(logs)
        logger.setLevel(level)


def emit(
    sizes: list[int],
    *,
    fail_after: int | None = None,
    dtype: str = "int32",
    trailing: tuple[int, ...] = (),
    text_after: int | None = None,
) -> Callable[[], Iterator[dict[str, np.ndarray]]]:
    """Return a source that emits batches of these sizes; a row tells its process and index."""
    first = 1000 * jax.process_index()

    def source() -> Iterator[dict[str, np.ndarray]]:
        start = first
        for index, size in enumerate(sizes):
            if index == fail_after:
                raise KeyError("the disk is gone")
            rows = np.arange(start, start + size).astype(dtype)
            rows = np.broadcast_to(rows.reshape(-1, *[1] * len(trailing)), (size, *trailing))
            yield {"x": rows.astype(str) if index == text_after else rows}
            start += size
        if fail_after is not None and fail_after >= len(sizes):
            raise KeyError("the disk is gone")

    return source


def local_rows(array: jax.Array) -> list[int]:
    """Return the values of this process's shards, in order of their index."""
    shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return [int(value) for shard in shards for value in np.asarray(shard.data).reshape(-1)]


def consume(
    batches: Any,
    *,
    leave_after: int | None = None,
    collective: bool = True,
    before_step: Callable[[int], None] | None = None,
) -> Observed:
    """Iterate to the end, with a reduction over all processes after each batch."""
    seen = Observed()
    with collected_logs() as logs:
        iterator = iter(batches)
        try:
            while leave_after is None or len(seen.shapes) < leave_after:
                batch = next(iterator)
                seen.shapes.append(batch["x"].shape)
                seen.rows.append(local_rows(batch["x"]))
                rank.record("batch", k=len(seen.shapes) - 1)
                if before_step is not None:
                    before_step(len(seen.shapes) - 1)
                if collective:
                    seen.sums.append(float(jnp.sum(batch["x"])))
        except StopIteration:
            pass
        except jaxiter.JaxIterError as error:
            seen.error = type(error).__name__
            seen.message = str(error)
            seen.process = error.process
            seen.batch = error.batch
            seen.column = getattr(error, "column", None)
            seen.cause = type(error.__cause__).__name__ if error.__cause__ else ""
        if leave_after is None or seen.error:
            try:
                next(iterator)
            except (StopIteration, jaxiter.JaxIterError) as error:
                seen.again = type(error).__name__
        else:
            iterator.close()
        seen.logs = list(logs)
    if isinstance(batches, jaxiter.JaxBatches):
        seen.stats = batches.stats()[-1]
    return seen


def run_epoch(source: dict[str, Any], options: dict[str, Any], **how: Any) -> Observed:
    """Run one epoch on a source made by `emit`."""
    return consume(jaxiter.iter_jax_batches(emit(**source), **options), **how)


def make_and_run(source: dict[str, Any], options: dict[str, Any]) -> str:
    """Run one epoch; the class of the error that making or iterating raises."""
    try:
        for batch in jaxiter.iter_jax_batches(emit(**source), **options):
            batch["x"].block_until_ready()
    except jaxiter.JaxIterError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def keys_left(limit_s: float = 5.0) -> list[str]:
    """Return the keys of the iterator that are still there when all had time to leave."""
    from jaxiter.rendezvous import service

    store = service()
    assert store is not None
    deadline = time.monotonic() + limit_s
    while keys := list(store.list("jaxiter")):
        if time.monotonic() > deadline:
            return keys
        time.sleep(0.02)
    return []


def threads_left(limit_s: float = 3.0) -> list[str]:
    """Return the names of threads of the iterator that do not end."""
    deadline = time.monotonic() + limit_s
    while names := [t.name for t in threading.enumerate() if t.name.startswith("jaxiter")]:
        if time.monotonic() > deadline:
            return names
        time.sleep(0.02)
    return []
