"""Tests of jaxiter.packing and jaxiter.putting, on the devices of this process."""

import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxiter
from jaxiter import packing, placement, putting
from jaxiter.options import make_options

F32, I32 = np.dtype(np.float32), np.dtype(np.int32)
WIDTH, LEAST = packing.WIDTH, packing.LEAST


def table(rows: int, columns: int = 2 * LEAST + 3, first: int = 0) -> dict[str, np.ndarray]:
    """A wide table: floats, a few integers among them, and one column that is no scalar."""
    made: dict[str, np.ndarray] = {
        f"c{i:02}": np.arange(first, first + rows).astype(np.int32 if i % 5 == 4 else np.float32)
        + 100 * i
        for i in range(columns)
    }
    made["vector"] = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    return made


def test_blocks_hold_scalar_columns_of_one_dtype() -> None:
    """A block is of all columns of one dimension and one dtype, if they are many, and small."""
    columns = [(F32, 1)] * LEAST + [(F32, 2), (I32, 1)] + [(F32, 1)] * 3
    block = (*range(LEAST), *range(LEAST + 2, LEAST + 5))

    assert packing.groups(columns, 16) == [block]
    assert packing.groups(columns, packing.MOST_BYTES // 4) == [block]
    assert packing.groups(columns, packing.MOST_BYTES // 4 + 1) == []
    assert packing.groups([(F32, 1)] * (LEAST - 1), 16) == []


@pytest.mark.parametrize("columns", [WIDTH, 2 * WIDTH, 2 * WIDTH + 1, 3 * WIDTH - 1])
def test_a_block_of_any_width_is_taken_apart(columns: int) -> None:
    """Each column comes out once, in its place, whatever is left for the last launch."""
    sharding = placement.default_sharding()
    block = np.arange(columns * 16, dtype=np.float32).reshape(columns, 16)
    placed = jax.device_put(block, packing.block_sharding(sharding))
    taken = packing.unpacker(sharding, block.shape, block.dtype)(placed)

    assert [np.asarray(column).tolist() for column in taken] == block.tolist()
    assert {column.sharding for column in taken} == {sharding}


@pytest.mark.parametrize("mask", [None, "a", "z"])
@pytest.mark.parametrize("rows", [[16, 16], [16, 5]], ids=["full", "padded"])
def test_a_wide_table_arrives_as_it_would_column_by_column(mask: Any, rows: Any) -> None:
    """Columns in blocks have the values, sharding and commitment of those put one by one."""
    source = [table(size, first=100 * k) for k, size in enumerate(rows)]
    options: Any = {"batch_size": 16, "paddings": 7, "mask_column": mask}
    packed = list(jaxiter.iter_jax_batches(source, **options))
    alone = list(jaxiter.iter_jax_batches(source, synchronize_batches=False, **options))

    assert len(packed) == len(alone) == 2
    for one, other in zip(packed, alone, strict=True):
        assert list(one) == list(other)
        for name in one:
            assert np.asarray(one[name]).tolist() == np.asarray(other[name]).tolist()
            assert one[name].sharding == other[name].sharding
            assert (one[name].committed, one[name].aval) == (True, other[name].aval)


def test_a_wide_table_arrives_inside_any_mesh() -> None:
    """The consumer may be inside a mesh of its own."""
    mesh = Mesh(np.array(jax.devices())[::-1].reshape(2, -1), ("a", "b"))
    with jax.set_mesh(mesh):
        (batch,) = jaxiter.iter_jax_batches([table(16)], batch_size=16)

    assert np.asarray(batch["c01"]).tolist() == [100 + k for k in range(16)]


@pytest.mark.parametrize("first", [True, False], ids=["compiled there", "compiled before"])
@pytest.mark.parametrize("name", ["jax_debug_nans", "jax_debug_infs", "jax_disable_jit"])
def test_a_wide_table_arrives_where_steps_are_debugged(name: str, first: bool) -> None:
    """NaN and infinity are no error of the iterator, and programs need not be compiled ones."""
    source = table(16)
    source["c01"][3:6] = np.nan, np.inf, -np.inf
    if first:
        packing.unpacker.cache_clear()
    jax.config.update(name, True)
    try:
        batches = list(jaxiter.iter_jax_batches([source] * 3, batch_size=16))
    finally:
        jax.config.update(name, False)

    for batch in batches:
        assert np.array_equal(np.asarray(batch["c01"]), source["c01"], equal_nan=True)


def test_the_consumer_takes_blocks_apart_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that takes blocks apart is launched in the thread that calls next()."""
    threads = []
    original = placement.Packed.unpacked

    def watched(packed: placement.Packed) -> list[jax.Array]:
        threads.append(threading.current_thread())
        return original(packed)

    monkeypatch.setattr(placement.Packed, "unpacked", watched)
    for _ in jaxiter.iter_jax_batches([table(16)] * 5, batch_size=16):
        pass

    assert threads == [threading.current_thread()] * 5


@pytest.mark.parametrize("make", [putting.batched_put, putting.public_put])
@pytest.mark.parametrize("spec", [("data",), (("data", "model"),), ("data", "model")])
def test_both_ways_to_put_do_the_same(make: Any, spec: Any) -> None:
    """JAX's batched put and the public function give equal arrays."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("data", "model"))
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    rows = np.arange(64, dtype=np.float32).reshape(8, 8)
    array = make(placement.layout_of(sharding, 1, rows.shape), rows.dtype)(rows)

    assert np.asarray(array).tolist() == rows.tolist()
    assert (array.sharding, array.committed) == (sharding, True)


def test_the_batched_put_is_found_in_this_jax() -> None:
    """The version of JAX that is tested has it where it is looked for."""
    putting.best_put.cache_clear()

    assert putting.best_put() is putting.batched_put


@pytest.mark.parametrize("breaks", ["missing", "raises", "differs"])
def test_the_public_function_stands_in(monkeypatch: pytest.MonkeyPatch, breaks: str) -> None:
    """If the batched put is gone, raises, or does something else, batches arrive all the same."""
    from jax._src.interpreters import pxla

    def other(layout: Any, dtype: Any) -> Any:
        if breaks == "raises":
            raise TypeError("other arguments")
        return lambda leaf: jax.device_put(np.zeros_like(leaf, dtype), layout.sharding)

    if breaks == "missing":
        monkeypatch.delattr(pxla, "batched_device_put")
    else:
        monkeypatch.setattr(putting, "batched_put", other)
    putting.best_put.cache_clear()
    try:
        assert putting.best_put() is putting.public_put
        if breaks != "missing":  # which JAX itself could not do without
            (batch,) = jaxiter.iter_jax_batches([table(16)], batch_size=16)
            assert np.asarray(batch["vector"]).tolist() == table(16)["vector"].tolist()
    finally:
        putting.best_put.cache_clear()


@pytest.mark.parametrize("offset", [0, 16], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("row_bytes", [8, 1 << 12, 1 << 17], ids=["small", "1 MiB", "32 MiB"])
@pytest.mark.parametrize("rows", [256, 96], ids=["full batches", "pieces"])
def test_a_source_may_reuse_its_buffer(offset: int, row_bytes: int, rows: int) -> None:
    """What was delivered stays as it was when the source overwrites its buffer, however it lies."""
    raw = np.empty(rows * row_bytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    buffer = raw[start : start + rows * row_bytes].view(np.int32).reshape(rows, -1)
    count = 8

    def source() -> Iterator[dict[str, np.ndarray]]:
        for value in range(count):
            buffer[:] = value
            yield {"x": buffer}
            buffer[:] = -1

    batches = list(jaxiter.iter_jax_batches(source, batch_size=256, drop_last=True))
    seen = [np.asarray(batch["x"]) for batch in batches]

    due = np.repeat(np.arange(count), rows)[: len(seen) * 256]
    assert len(seen) == rows * count // 256
    assert np.concatenate([batch.min(axis=1) for batch in seen]).tolist() == due.tolist()
    assert np.concatenate([batch.max(axis=1) for batch in seen]).tolist() == due.tolist()


@pytest.mark.parametrize("dtype", [None, jax.numpy.bfloat16], ids=["as it is", "cast"])
@pytest.mark.parametrize("rows", [16, 6], ids=["full batches", "pieces"])
def test_a_source_may_reuse_the_buffer_of_a_wide_table(dtype: Any, rows: int) -> None:
    """Columns in blocks, too, stay as they were delivered when the source overwrites its buffer."""
    buffer = np.empty((2 * LEAST, rows), np.float32)
    count = 8

    def source() -> Iterator[dict[str, np.ndarray]]:
        for value in range(count):
            buffer[:] = value
            yield {f"c{i:02}": column for i, column in enumerate(buffer)}
            buffer[:] = -1

    batches = list(jaxiter.iter_jax_batches(source, batch_size=16, drop_last=True, dtypes=dtype))

    due = np.repeat(np.arange(count), rows)[: len(batches) * 16].tolist()
    assert len(batches) == rows * count // 16
    for name in batches[0]:
        assert np.concatenate([np.asarray(batch[name]) for batch in batches]).tolist() == due


def test_a_buffer_is_used_again_only_when_nothing_refers_to_it() -> None:
    """Batches that are kept, or whose results are still computed, never change."""

    def source() -> Iterator[dict[str, np.ndarray]]:
        for value in range(40):
            yield {"x": np.full((64, 4096), value, np.float32)}

    donating = jax.jit(lambda x: x + 1, donate_argnums=0)
    slow = jax.jit(lambda x: (x @ x.T).sum())
    kept, views, sums, donated = [], [], [], []
    for k, batch in enumerate(jaxiter.iter_jax_batches(source, batch_size=64)):
        array = batch.pop("x")
        if k % 4 == 0:
            kept.append((k, array))
        elif k % 4 == 1:
            views.append((k, np.asarray(array.addressable_shards[0].data)))
        elif k % 4 == 2:
            sums.append((k, slow(array)))
        else:
            donated.append((k, donating(array)))
        del array, batch

    assert all((np.asarray(array) == k).all() for k, array in kept)
    assert all((view == k).all() for k, view in views)
    assert all(float(total) == pytest.approx(k * k * 64 * 64 * 4096) for k, total in sums)
    assert all((np.asarray(array) == k + 1).all() for k, array in donated)


def test_a_wide_table_that_is_not_packed_stays_with_the_public_sharding() -> None:
    """Blocks are for shardings of rows alone; others, and processes on their own, do without."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("data", "model"))
    two = NamedSharding(mesh, PartitionSpec("data", "model"))

    assert packing.block_sharding(two) is None
    assert not placement.Placement(make_options(synchronize_batches=False, batch_size=16)).packs
    assert placement.Placement(make_options(batch_size=16)).packs
