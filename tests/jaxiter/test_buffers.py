"""Tests of jaxiter.buffers."""

import gc
import mmap
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxiter
from jaxiter import buffers, stages
from jaxiter.buffers import ALIGNMENT, Pool, aligned_empty, is_immutable


@given(
    st.lists(st.integers(0, 5), max_size=3).map(tuple),
    st.sampled_from(["bool", "int4", "float16", "bfloat16", "float8_e5m2", "complex128"]),
)
def test_aligned_empty_is_aligned_contiguous_and_writable(shape: Any, dtype: Any) -> None:
    """The array has the shape and dtype asked for, and starts on a 64-byte boundary."""
    array = aligned_empty(shape, np.dtype(dtype))

    assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.ctypes.data % ALIGNMENT == 0 or array.size == 0


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a read-only view of `array`."""
    view = array.view()
    view.flags.writeable = False
    return view


def owned_read_only() -> np.ndarray:
    """Return an array that owns its memory and is read-only, until its owner changes his mind."""
    array = np.zeros(4)
    array.flags.writeable = False
    return array


IMMUTABLE: dict[str, Any] = {
    "over bytes": lambda: np.frombuffer(bytes(32), np.float64),
    "view of it": lambda: np.frombuffer(bytes(32), np.float64).reshape(2, 2)[1:],
    "over an Arrow buffer of bytes": lambda: np.frombuffer(pa.py_buffer(bytes(32)), np.float64),
    "over an Arrow stream of bytes": lambda: _table().column("x").to_numpy(),
}
MUTABLE: dict[str, Any] = {
    "writable": lambda: np.zeros(4),
    "read-only view of a writable one": lambda: read_only(np.zeros(4)),
    "read-only, but its own": owned_read_only,
    "over a bytearray": lambda: np.frombuffer(bytearray(32), np.float64),
    "read-only over a bytearray": lambda: np.frombuffer(
        memoryview(bytearray(32)).toreadonly(), np.float64
    ),
    "over shared memory": lambda: read_only(np.frombuffer(mmap.mmap(-1, 32), np.float64)),
    "of an Arrow array over a numpy one": lambda: pa.array(np.zeros(4)).to_numpy(),
}


def _table() -> Any:
    """Return a table that was read from bytes without a copy."""
    sink = pa.BufferOutputStream()
    table = pa.table({"x": np.arange(4.0)})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue().to_pybytes()).read_all()


@pytest.mark.parametrize("name", IMMUTABLE)
def test_memory_that_nobody_can_write_to_is_known(name: Any) -> None:
    """Read-only arrays over bytes or over immutable Arrow buffers are immutable."""
    assert is_immutable(IMMUTABLE[name]())


@pytest.mark.parametrize("name", MUTABLE)
def test_memory_that_somebody_could_write_to_is_not_trusted(name: Any) -> None:
    """A read-only array is not immutable while something writable is behind it."""
    assert not is_immutable(MUTABLE[name]())


def test_a_pool_hands_out_a_buffer_again_once_no_view_is_left() -> None:
    """While any view of a buffer lives, the pool makes another; then it uses the same memory."""
    pool = Pool(1 << 22)
    first = pool.empty((4, 1 << 16), np.dtype(np.float32))
    where = first.ctypes.data
    view = first[1:2][:, ::2]
    del first
    second = pool.empty((4, 1 << 16), np.dtype(np.float32))

    assert second.ctypes.data != where
    assert pool.idle_bytes == 0
    del view
    assert pool.idle_bytes == 1 << 20
    third = pool.empty((1 << 20,), np.dtype(np.uint8))
    assert third.ctypes.data == where
    assert where % ALIGNMENT == 0


def test_a_pool_keeps_no_more_than_it_may() -> None:
    """Beyond its bound, buffers are let go; small ones are not kept at all."""
    pool = Pool(2 << 20)
    held = [pool.empty((1 << 20,), np.dtype(np.uint8)) for _ in range(4)]
    small = pool.empty((8,), np.dtype(np.uint8))
    del held, small

    assert pool.idle_bytes == 2 << 20


def test_what_lies_idle_makes_way_for_another_size() -> None:
    """A fresh buffer takes the place of idle ones of other sizes, as far as it needs to."""
    pool = Pool(4 << 20)
    held = [pool.empty((1 << 20,), np.dtype(np.uint8)) for _ in range(3)]
    del held
    assert pool.idle_bytes == 3 << 20
    larger = pool.empty((2 << 20,), np.dtype(np.uint8))

    assert pool.idle_bytes == 1 << 20
    del larger
    assert pool.idle_bytes == 3 << 20


@pytest.mark.parametrize("at", range(2, 22, 2))
def test_garbage_may_be_collected_while_the_pool_looks_at_what_is_idle(at: int) -> None:
    """A buffer of another size that comes back in the midst of a look does not spoil it.

    Up to Python 3.11 garbage is collected where a tuple is made, if there is no old one to use.
    """
    pool = Pool(64 << 20)
    held = [pool.empty(((1 << 18) + 1,), np.dtype(np.uint8))]
    idle = [pool.empty(((1 << 18) + extra,), np.dtype(np.uint8)) for extra in range(2, 52)]
    del idle
    before = pool.idle_bytes
    threshold = gc.get_threshold()
    collections = 0

    def let_go(phase: str, _: dict[str, int]) -> None:
        nonlocal collections
        collections += phase == "start"
        if collections == at:  # of some two dozen, if each item of the pool is a new tuple
            held.clear()

    tuples = [(each, each) for each in range(4000)]  # more than the interpreter keeps
    gc.callbacks.append(let_go)
    gc.set_threshold(1)
    try:
        seen = pool.idle_bytes
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(let_go)
    del tuples

    assert seen - before in (0, (1 << 18) + 1)  # whether it came first


def test_epochs_use_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one iterator has copied into serves the next one of this process."""
    pool, made = Pool(4 << 20), []

    def counted(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        made.append(shape)
        return aligned_empty(shape, dtype)

    monkeypatch.setattr(stages, "_POOL", pool)
    monkeypatch.setattr(buffers, "aligned_empty", counted)
    for _ in range(3):
        rows = [{"x": np.zeros((8, 1 << 15), np.float32)}]
        for batch in jaxiter.iter_jax_batches(rows, batch_size=8):
            assert batch["x"].shape == (8, 1 << 15)
            del batch
        gc.collect()

    assert made == [(1 << 20,)]
