"""What runs on each rank: read the iterator as a training loop would, and record all that is seen.

The records are the evidence: bytes of each shard, the value of each computation, each ending. They
are written as they happen, so that a rank that hangs or dies leaves what it saw until then.
"""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from conformance.collates import collate_of
from conformance.model import Case, Kind
from conformance.sources import MemorySource
from conformance.subjects import Subject
from harness import rank

#: A loop that gets more batches than this has lost its end.
MANY = 1000


def observe(subject: Subject, case: Case, kind: Kind, source: Any = None) -> None:
    """Run the case on this rank. ``source`` is the rank's Ray shard; None in memory."""
    process = rank.this().rank
    iterate = subject.load()
    options = case.options_of(process)

    def make() -> Iterator[Any]:
        own = source if kind == "ray" else MemorySource(case.shards[process], process)
        if case.collate:
            options["collate_fn"] = collate_of(case, process, kind)
        return iter(iterate(own, **options))

    match case.use.style:
        case "plain":
            _epochs(case, process, make)
        case "thread":
            _in_thread(lambda: _epochs(case, process, make))
        case "reader_thread":
            _epochs(case, process, lambda: _read_ahead(make))
        case "mesh":
            with jax.set_mesh(user_mesh()):
                _epochs(case, process, make)
        case "interleaved":
            _interleaved(case, process, make)
    gc.collect()


def user_mesh() -> Mesh:
    """A mesh of two axes, in an order of devices that is not the iterator's."""
    devices = np.array(jax.devices()[::-1]).reshape(jax.process_count(), -1)
    return Mesh(devices, ("replica", "shard"))


def warm_up() -> None:
    """One collective over each mesh that a case may use, so that none pays for its first use."""
    mesh = user_mesh()
    local = np.ones((jax.local_device_count(),), np.float32)
    rows = NamedSharding(mesh, PartitionSpec(("replica", "shard")))
    array = jax.make_array_from_process_local_data(rows, local)
    jax.block_until_ready(jax.device_put(array, NamedSharding(mesh, PartitionSpec())))
    jax.block_until_ready(_sums([array]))
    # What is loaded by now stays: a collection after each case then looks at that case alone.
    gc.collect()
    gc.freeze()


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
            rank.record("next", epoch=epoch, k=k)
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


def _interleaved(case: Case, process: int, make: Callable[[], Iterator[Any]]) -> None:
    """Two iterators in turns, recorded as epochs 0 and 1."""
    which = 0
    try:
        pair = [make(), make()]
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
    rank.record("batch", epoch=epoch, k=k, leaves=[_leaf(path, leaf) for path, leaf in leaves])
    arrays = [leaf for _, leaf in leaves]
    if case.use.move:
        mesh = user_mesh()
        moved = [jax.device_put(a, NamedSharding(mesh, PartitionSpec())) for a in arrays]
        whole = [np.asarray(a.addressable_data(0)) for a in moved]
        rank.record("moved", epoch=epoch, k=k, leaves=whole)
    if case.use.slow_step_s.get(process):
        time.sleep(case.use.slow_step_s[process])
    if case.use.step:
        rank.record("step", epoch=epoch, k=k)
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
    """An error in words: its classes, and the texts of those that it was raised from."""
    chain: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(chain) < 10:
        chain.append(f"{type(seen).__name__}: {seen}"[:2000])
        seen = seen.__cause__ or seen.__context__
    mro = [c.__name__ for c in type(error).__mro__]
    return {"type": type(error).__name__, "mro": mro, "message": str(error)[:4000], "chain": chain}


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
