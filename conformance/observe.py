"""What runs on each rank: read the iterator as a training loop would, and record all that is seen.

The records are the evidence: bytes of each shard, the value of each computation, each ending. They
are written as they happen, so that a rank that hangs or dies leaves what it saw until then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from conformance import shardings
from conformance.collates import collate_of
from conformance.model import Case, Kind
from conformance.sources import MemorySource
from conformance.subjects import Subject
from harness import rank

#: A loop that gets more batches than this has lost its end.
MANY = 1000
#: Of the traceback of an error, its end is kept.
TRACEBACK_CHARACTERS = 8000
#: A thread of Ray's `WaitBlockPrefetcher`, the source's own: it looks at its flag before taking its
#: lock, so it may miss the wake-up of `stop` and park for ever, whoever reads the dataset.
_RAYS_OWN = "Prefetcher"


def observe(subject: Subject, case: Case, kind: Kind, *sources: Any) -> None:
    """Run the case on this rank. ``sources`` are the rank's Ray shards; none in memory."""
    process = rank.this().rank
    if kind == "ray":
        rank.let_threads_stay(_RAYS_OWN)
    iterate = subject.load()
    options = subject.given(case.options_of(process))

    if kind == "memory":
        shard, owner = case.shards[process], case.owner(process)
        sources = tuple(MemorySource(shard, owner) for _ in range(case.use.iterators))
    if case.collate:
        options["collate_fn"] = collate_of(case, process, kind)
    if case.sharding:
        options["sharding"] = shardings.make(case.sharding)
    iterables: list[Iterable[Any]] = []

    def make(which: int = 0, **other: Any) -> Iterator[Any]:
        if not iterables or case.use.style != "again":
            iterables.append(iterate(sources[which], **options, **other))
        return iter(iterables[-1])

    logging.getLogger().addHandler(log := _Log(logging.WARNING))
    try:
        if process not in case.use.absent:
            _use(case, process, make)
    finally:
        logging.getLogger().removeHandler(log)
    _record_stats(iterables)
    iterables.clear()
    _collect()


def _collect() -> None:
    """Collect garbage. What is left stays: the next time only what is newer is looked at.

    What was loaded and compiled for cases takes some 20 ms to look through, as long as a case.
    """
    gc.collect()
    gc.freeze()


def observe_in_train(subject: Subject, case: Case) -> None:
    """Run the case in the train loop of a trainer, on the shards that it was given."""
    import ray.train

    shards = (ray.train.get_dataset_shard(str(k)) for k in range(case.use.iterators))
    observe(subject, case, "ray", *shards)


class _Log(logging.Handler):
    """Records what is logged as a warning or worse."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        rank.record("log", logger=record.name, level=record.levelname, text=record.getMessage())


def _record_stats(iterables: list[Iterable[Any]]) -> None:
    """Record the ledger of each epoch, where the subject keeps one."""
    for iterable in iterables:
        stats = getattr(iterable, "stats", None)
        if callable(stats):
            for one in stats():
                rank.record("stats", **dataclasses.asdict(one))


def _use(case: Case, process: int, make: Callable[..., Iterator[Any]]) -> None:
    match case.use.style:
        case "plain" | "again":
            _epochs(case, process, make)
        case "thread":
            _in_thread(lambda: _epochs(case, process, make))
        case "reader_thread":
            _epochs(case, process, lambda: _read_ahead(make))
        case "mesh":
            with jax.set_mesh(user_mesh()):
                _epochs(case, process, make)
        case "interleaved":
            _interleaved(case, process, [make, lambda: make(1)])
        case "crossed":
            _interleaved(case, process, _crossed(case, process, make))


@cache
def user_mesh() -> Mesh:
    """A mesh of two axes, in an order of devices that is not the iterator's."""
    devices = np.array(jax.devices()[::-1]).reshape(jax.process_count(), -1)
    return Mesh(devices, ("replica", "shard"))


def warm_up() -> None:
    """One collective over each mesh that a case may use, so that none pays for its first use."""
    if jax.process_count() <= len(os.sched_getaffinity(0)):
        _be_batch()
    mesh = user_mesh()
    rows = NamedSharding(mesh, PartitionSpec(("replica", "shard")))
    for sharding in (rows, *(shardings.make(name) for name in shardings.NAMES)):
        whole = np.ones((jax.device_count(),), np.float32)
        array = jax.make_array_from_callback(whole.shape, sharding, whole.__getitem__)
        jax.block_until_ready(jax.device_put(array, NamedSharding(mesh, PartitionSpec())))
        jax.block_until_ready(_sums([array]))
    _collect()


def _be_batch() -> None:
    """Let the threads of this process, and those to come, preempt nobody when they are woken.

    One that sends by gloo holds a lock, and is preempted by whom it woke: meanwhile gloo's own
    thread asks for that lock over and over, on a core that others need. Half of a case was that.
    Where there are fewer cores than processes, whoever is woken would wait too long for its turn.
    """
    for thread in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(OSError):  # it ended, or the system does not let us: only slower
            if os.sched_getscheduler(thread) == os.SCHED_OTHER:
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def _epochs(case: Case, process: int, make: Callable[[], Iterator[Any]]) -> None:
    for epoch in range(case.use.epochs):
        last = epoch == case.use.epochs - 1
        leave = case.use.leave.get(process) if case.use.epochs == 1 or not last else None
        if not _one_epoch(case, process, epoch, make, leave):
            return


def _one_epoch(
    case: Case, process: int, epoch: int, make: Callable[[], Iterator[Any]], leave: int | None
) -> bool:
    """Read one epoch; False when it ended in an error."""
    held: list[Any] = []
    iterator = None
    how, error = "stop", None
    try:
        for k in range(MANY):
            rank.record("next", epoch=epoch, k=k, batch=k)
            if iterator is None:
                iterator = make()
            if k == leave:
                how = "left"
                break
            try:
                batch = next(iterator)
            except StopIteration:
                break
            if case.use.hold:
                held.append(batch)
            else:
                _batch(case, process, epoch, k, batch)
            if process in case.use.lost:
                rank.record("lost", signal=case.use.lost[process])
                os.kill(os.getpid(), signal.Signals[case.use.lost[process]])
        else:
            how = "endless"
    except Exception as caught:  # noqa: BLE001  any error is what is observed here
        how, error = "error", caught
    for k, batch in enumerate(held):
        _batch(case, process, epoch, k, batch)
    if how == "left" and iterator is not None and hasattr(iterator, "close"):
        iterator.close()
    if error is None:
        rank.record("end", epoch=epoch, how=how)
    else:
        rank.record("end", epoch=epoch, how=how, **_error(error))
    return error is None


def _crossed(
    case: Case, process: int, make: Callable[..., Iterator[Any]]
) -> list[Callable[[], Iterator[Any]]]:
    """Two iterators that odd processes make in the other order; named if the case names them."""
    made: dict[int, Iterator[Any]] = {}
    for which in (0, 1) if process % 2 == 0 else (1, 0):
        name = {"name": f"crossed-{which}"} if case.use.named else {}
        # Of other dtypes, so that to mix the two is to be found out.
        made[which] = make(which, **name, **({"dtypes": "float32"} if which else {}))
    return [lambda: made[0], lambda: made[1]]


def _interleaved(case: Case, process: int, makers: list[Callable[[], Iterator[Any]]]) -> None:
    """Two iterators in turns, recorded as epochs 0 and 1."""
    which = 0
    try:
        pair = [make() for make in makers]
        live = [0, 1]
        for k in range(MANY):
            for which in list(live):
                rank.record("next", epoch=which, k=k)
                try:
                    batch = next(pair[which])
                except StopIteration:
                    live.remove(which)
                    rank.record("end", epoch=which, how="stop")
                    continue
                _batch(case, process, which, k, batch)
            if not live:
                return
    except Exception as caught:  # noqa: BLE001  any error is what is observed here
        rank.record("end", epoch=which, how="error", **_error(caught))


def _batch(case: Case, process: int, epoch: int, k: int, batch: Any) -> None:
    """Record one batch and, if the case steps, the value of a computation across processes."""
    leaves = jax.tree_util.tree_flatten_with_path(batch)[0]
    seen = [_leaf(path, leaf) for path, leaf in leaves]
    arrays_seen = [leaf for leaf in seen if "shape" in leaf]
    rank.record(
        "batch",
        epoch=epoch,
        k=k,
        batch=k,
        shapes={leaf["path"]: leaf["shape"] for leaf in arrays_seen},
        dtypes={leaf["path"]: leaf["dtype"] for leaf in arrays_seen},
        tree=str(jax.tree.structure(batch)),
        leaves=seen,
    )
    arrays = [leaf for _, leaf in leaves]
    if case.use.move:
        rank.record("step", epoch=epoch, k=k, batch=k)
        mesh = user_mesh()
        moved = [jax.device_put(a, NamedSharding(mesh, PartitionSpec())) for a in arrays]
        whole = [np.asarray(a.addressable_data(0)) for a in moved]
        rank.record("moved", epoch=epoch, k=k, leaves=whole)
    if case.use.slow_step_s.get(process):
        time.sleep(case.use.slow_step_s[process])
    if case.use.step:
        rank.record("step", epoch=epoch, k=k, batch=k)
        if case.use.style == "mesh":
            spec = NamedSharding(user_mesh(), PartitionSpec(("replica", "shard")))
            arrays = [jax.device_put(a, spec) for a in arrays]
        sums = [np.asarray(s).item() for s in _sums(arrays)]
        rank.record("stepped", epoch=epoch, k=k, sums=sums)


@jax.jit
def _sums(arrays: list[jax.Array]) -> list[jax.Array]:
    """One sum an array, over all processes: integers in int32 (it wraps), floats in float32."""
    exact = jnp.int32
    return [
        jnp.sum(
            a.astype(jnp.float32 if jnp.issubdtype(a.dtype, jnp.inexact) else exact), dtype=None
        )
        for a in arrays
    ]


def _leaf(path: Any, leaf: Any) -> dict[str, Any]:
    """All that this process can see of one array, without a computation across processes."""
    name = jax.tree_util.keystr(path)
    if not isinstance(leaf, jax.Array):
        return {"path": name, "type": type(leaf).__name__}
    sharding = leaf.sharding
    shards = sorted(leaf.addressable_shards, key=lambda s: s.index[0].start or 0 if s.index else 0)
    found: dict[str, Any] = {
        "path": name,
        "shape": list(leaf.shape),
        "dtype": leaf.dtype.name,
        "shards": [
            {
                "device": s.device.id,
                "index": [
                    [i.start or 0, n if i.stop is None else i.stop]
                    for i, n in zip(s.index, leaf.shape, strict=True)
                ],
                "data": np.asarray(s.data),
            }
            for s in shards
        ],
    }
    if isinstance(sharding, NamedSharding):
        found["sharding"] = {
            "mesh": [d.id for d in sharding.mesh.devices.flat],
            "axes": dict(zip(sharding.mesh.axis_names, sharding.mesh.devices.shape, strict=True)),
            "spec": [list(s) if isinstance(s, tuple) else s for s in sharding.spec],
        }
    return found


def _error(error: BaseException) -> dict[str, Any]:
    """An error in words: its classes, the texts of those it was raised from, and where it was."""
    chain: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(chain) < 10:
        chain.append(f"{type(seen).__name__}: {seen}"[:2000])
        seen = seen.__cause__ or seen.__context__
    mro = [c.__name__ for c in type(error).__mro__]
    return {
        "type": type(error).__name__,
        "mro": mro,
        "message": str(error)[:4000],
        "chain": chain,
        "traceback": "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:],
    }


def _in_thread(work: Callable[[], None]) -> None:
    """Run ``work`` in a thread that is not the main one, and pass its error on."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as caught:  # noqa: BLE001  it is raised again by the main thread
            errors.append(caught)

    thread = threading.Thread(target=run, name="consumer", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _read_ahead(make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """What ``make`` gives, read by a thread that is up to two batches ahead."""
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=2)

    def read() -> None:
        try:
            for batch in make():
                ready.put(("batch", batch))
            ready.put(("stop", None))
        except BaseException as caught:  # noqa: BLE001  it is raised again by the consumer
            ready.put(("error", caught))

    thread = threading.Thread(target=read, name="reader", daemon=True)
    thread.start()
    while True:
        what, value = ready.get()
        if what == "batch":
            yield value
            continue
        thread.join()
        if what == "error":
            raise value
        return
