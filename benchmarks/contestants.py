"""Who is measured. Each opens an epoch and returns an iterator of batches; runs on the ranks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.cells import Source
from benchmarks.works import Rows, Work


@dataclass(frozen=True)
class Feed:
    """What a contestant reads in one process.

    Attributes:
        work: What the rows are.
        source: A Ray dataset, or a function that opens an iterator of full batches (and a tail).
        sharding: Of all arrays: one axis over all devices, as Ray's iterator has it.
    """

    work: Work
    source: Any
    sharding: Any


@dataclass(frozen=True)
class Contestant:
    """One way to get batches.

    Attributes:
        name: What `--contestants` selects.
        words: What it is, for readers of the table.
        sources: What it can read.
        agrees: Whether it brings processes of unequal shards to one number of batches.
        open: Begins an epoch.
        is_jax: Whether its batches are JAX arrays.
    """

    name: str
    words: str
    sources: tuple[Source, ...]
    agrees: bool
    open: Callable[[Feed], Iterator[Any]]
    is_jax: bool = True


def _read(feed: Feed) -> Iterator[Rows]:
    """Yield the process's full batches on the host."""
    if callable(feed.source):
        size = feed.work.batch_size
        return (rows for rows in feed.source() if len(next(iter(rows.values()))) == size)
    return iter(
        feed.source.iter_batches(
            batch_size=feed.work.batch_size, batch_format="numpy", drop_last=True
        )
    )


def _global(feed: Feed, rows: Rows) -> dict[str, Any]:
    """Place a batch as the documentation of JAX recommends."""
    import jax

    dtype = feed.work.dtype
    return {
        name: jax.make_array_from_process_local_data(
            feed.sharding, column if dtype is None else column.astype(dtype)
        )
        for name, column in rows.items()
    }


def _by_hand(feed: Feed) -> Iterator[Any]:
    return (_global(feed, rows) for rows in _read(feed))


def _ray(synchronize: bool, prefetch: int) -> Callable[[Feed], Iterator[Any]]:
    def open_epoch(feed: Feed) -> Iterator[Any]:
        import jax.numpy as jnp
        from ray.data.util.jax_util import jax_sync_generator

        dtype = None if feed.work.dtype is None else jnp.dtype(feed.work.dtype)
        # As Ray's method does for what it reads; dtypes is one for a column, or none.
        names = feed.work.make(0, 1)
        dtypes = None if dtype is None else dict.fromkeys(names, dtype)
        if not callable(feed.source):
            return iter(
                feed.source.iter_jax_batches(
                    prefetch_batches=prefetch,
                    batch_size=feed.work.batch_size,
                    dtypes=dtypes,
                    drop_last=True,
                    synchronize_batches=synchronize,
                )
            )
        generator: Iterator[Any] = jax_sync_generator(
            _read(feed),
            True,
            batch_size=feed.work.batch_size,
            dtypes=dtypes,
            synchronize_batches=synchronize,
            synchronize_lookahead=max(prefetch, 1),
        )
        return generator

    return open_epoch


def _jaxiter(synchronize: bool) -> Callable[[Feed], Iterator[Any]]:
    def open_epoch(feed: Feed) -> Iterator[Any]:
        import jaxiter

        return iter(
            jaxiter.iter_jax_batches(
                feed.source,
                batch_size=feed.work.batch_size,
                dtypes=feed.work.dtype,
                drop_last=True,
                synchronize_batches=synchronize,
            )
        )

    return open_epoch


def _grain(feed: Feed) -> Iterator[Any]:
    """Read with grain, and with the two stages of its `device_put`: host threads, then devices.

    `grain.experimental.device_put` hands each host batch to `jax.device_put`, which takes it for
    the whole of the global array. So at several processes the map in the middle is another.
    """
    import grain
    import jax
    from grain import experimental

    class Epoch(grain.IterDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return _GrainIterator(_read(feed))

    class _GrainIterator(grain.DatasetIterator):  # type: ignore[misc]
        def __init__(self, rows: Iterator[Rows]) -> None:
            super().__init__()
            self._rows = rows

        def __next__(self) -> Rows:
            return next(self._rows)

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: dict[str, Any]) -> None:
            raise NotImplementedError

    if jax.process_count() == 1 and feed.work.dtype is None:
        return iter(experimental.device_put(Epoch(), feed.sharding))
    staged = experimental.ThreadPrefetchIterDataset(Epoch(), prefetch_buffer_size=4)
    placed = staged.map(lambda rows: _global(feed, rows))
    return iter(experimental.ThreadPrefetchIterDataset(placed, prefetch_buffer_size=2))


def _resident(feed: Feed) -> Iterator[Any]:
    """Give placed batches over and over, without end."""
    placed: list[Any] = []
    for rows in _read(feed):
        placed.append(_global(feed, rows))
        if len(placed) == 4:
            break
    while True:
        yield from placed


IN_MEMORY: tuple[Source, ...] = ("memory", "frozen")
ALL: tuple[Source, ...] = (*IN_MEMORY, "ray")
CONTESTANTS: Mapping[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        Contestant(
            "bound",
            'iter_batches(batch_format="numpy") alone, no JAX',
            ("ray",),
            False,
            _read,
            is_jax=False,
        ),
        Contestant(
            "hand", "by hand, with make_array_from_process_local_data", ALL, False, _by_hand
        ),
        Contestant("ray-off", "Ray without synchronisation", ALL, False, _ray(False, 1)),
        Contestant("ray", "Ray with synchronisation", ALL, True, _ray(True, 1)),
        Contestant("ray-10", "the same, prefetch_batches=10", ALL, True, _ray(True, 10)),
        Contestant("grain", "grain with device prefetch", IN_MEMORY, False, _grain),
        Contestant("jaxiter-off", "jaxiter without synchronisation", ALL, False, _jaxiter(False)),
        Contestant("jaxiter", "jaxiter", ALL, True, _jaxiter(True)),
        Contestant("resident", "the step alone, on batches that are there", ALL, True, _resident),
    )
}


def installed() -> list[str]:
    """Return the names of all contestants whose packages are there."""
    there = find_spec("grain") is not None
    return [name for name in CONTESTANTS if there or name != "grain"]


def taking_part(names: Iterable[str], source: Source, has_step: bool, uneven: bool) -> list[str]:
    """Return those of `names` that can be measured so.

    One that leaves processes with unequal numbers of batches cannot run on uneven shards, and the
    step alone is no measure where there is no step.
    """
    return [
        name
        for name in names
        if source in CONTESTANTS[name].sources
        and (CONTESTANTS[name].agrees or not uneven)
        and (name != "resident" or has_step)
        and (CONTESTANTS[name].is_jax or not has_step)
    ]


def repeated(
    work: Work, process: int, rows: int, *, frozen: bool = False, made: int = 8
) -> Callable[[], Iterator[Rows]]:
    """Return a source in memory: full batches and a tail, from `made` batches over and over.

    They are plain arrays of numpy, which the source could write to at any time: by hand they are
    used in place or copied, as malloc happens to align them; jaxiter must copy them. Those that are
    `frozen` may be used in place.
    """
    size = work.batch_size
    batches = [work.make(process * 1_000_003 + k * size, size) for k in range(made)]
    if frozen:
        batches = [{name: _frozen(column) for name, column in rows.items()} for rows in batches]

    def opened() -> Iterator[Rows]:
        for k in range(rows // size):
            yield dict(batches[k % made])
        if rows % size:
            yield {name: column[: rows % size] for name, column in batches[0].items()}

    return opened


def _frozen(column: np.ndarray) -> np.ndarray:
    """Return a copy over 64-byte aligned memory that nobody can write to, as Ray hands out."""
    import pyarrow as pa

    raw = np.empty(column.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    raw = raw[start : start + column.nbytes]
    raw[:] = np.ascontiguousarray(column).reshape(-1).view(np.uint8)
    raw.flags.writeable = False
    return np.frombuffer(pa.py_buffer(raw), column.dtype).reshape(column.shape)


def digest(batch: Mapping[str, Any]) -> list[float]:
    """Return a number a column that tells this process's rows and their order."""
    sums = []
    for name in sorted(batch):
        column = batch[name]
        if isinstance(column, np.ndarray):
            local = column
        else:
            shards = sorted(column.addressable_shards, key=lambda s: s.index[0].start or 0)
            local = np.concatenate([np.asarray(shard.data) for shard in shards])
        rows = local.reshape(len(local), -1).astype(np.float64).sum(axis=1)
        sums.append(float(rows @ np.arange(1, len(rows) + 1)))
    return sums
