"""Tables of many scalar columns: one transfer for all columns of a dtype, taken apart on devices.

A transfer a column costs more than the data. So columns of one number a row lie in one block, which
goes to the devices as one array of shape (columns, rows). A compiled program takes a few columns
out of it, from the one that it is told on, and is launched until the block is empty. One for all of
200 columns takes seconds to compile; and XLA's CPU client runs a program of up to 8 operations
in the thread that launches it, but hands the parts of a longer one to other threads, which takes
four times as long.

It is a computation over all devices, though no value crosses processes in it. So it is never
launched in the background: the consumer's own thread does that, in `next()`, in the same order on
all processes.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from jaxiter.casting import x64_enabled

WIDTH = 8  # columns that one launch takes out
LEAST = 16  # columns of a block: below that it does not pay for its compilation
MOST_BYTES = 1 << 16  # of a column: above that a copy costs more than a transfer

Blocks = Mapping[tuple[int, ...], np.ndarray]
Groups = Sequence[tuple[int, ...]]
Unpack = Callable[[jax.Array], Sequence[jax.Array]]


def groups(columns: Sequence[tuple[np.dtype[Any], int]], rows: int) -> Groups:
    """Return which columns lie in a block, for each block: the same on all processes.

    Args:
        columns: For each its dtype, and the number of its dimensions.
        rows: Of a full batch.
    """
    by_dtype: dict[np.dtype[Any], list[int]] = {}
    for position, (dtype, dimensions) in enumerate(columns):
        if dimensions == 1 and rows * dtype.itemsize <= MOST_BYTES:
            by_dtype.setdefault(dtype, []).append(position)
    return [tuple(positions) for positions in by_dtype.values() if len(positions) >= LEAST]


def block_sharding(sharding: Sharding) -> NamedSharding | None:
    """Return the sharding of a block whose columns have `sharding`; None if there is none."""
    if not isinstance(sharding, NamedSharding) or len(sharding.spec) > 1:
        return None
    spec = PartitionSpec(None, *sharding.spec)
    return NamedSharding(sharding.mesh, spec, memory_kind=sharding.memory_kind)


@lru_cache(maxsize=32)
def unpacker(sharding: NamedSharding, shape: tuple[int, int], dtype: np.dtype[Any]) -> Unpack:
    """Return what takes a block apart; it launches compiled programs.

    Args:
        sharding: Of each column.
        shape: Of the block, a global array: (columns, rows), `WIDTH` columns at least.
        dtype: Of the block; JAX must be set to hold it.
    """
    everywhere = NamedSharding(sharding.mesh, PartitionSpec(), memory_kind=sharding.memory_kind)
    take = _taker(sharding, everywhere, shape, dtype)
    last = shape[0] - WIDTH
    starts = [_number(start, everywhere) for start in [*range(0, last, WIDTH), last]]

    def unpack(block: jax.Array) -> Sequence[jax.Array]:
        columns: list[jax.Array] = []
        with _undebugged():
            for start in starts[:-1]:
                columns += take(block, start)
            # The last ones overlap with those before where WIDTH does not divide the columns.
            return columns + list(take(block, starts[-1])[len(columns) - last :])

    return unpack


def _undebugged() -> AbstractContextManager[Any]:
    """Return a context without what helps users to find faults in their own steps.

    Data may hold NaN and infinity, and a compiled program cannot be run as if it were not.
    """
    settings: Any = jax.config
    if not (settings.jax_debug_nans or settings.jax_debug_infs or settings.jax_disable_jit):
        return contextlib.nullcontext()
    context = contextlib.ExitStack()
    for switched_off in (jax.debug_nans(False), jax.debug_infs(False), jax.disable_jit(False)):
        context.enter_context(switched_off)
    return context


def _number(value: int, everywhere: NamedSharding) -> jax.Array:
    return jax.make_array_from_callback((), everywhere, lambda _: np.int32(value))


def _taker(
    sharding: NamedSharding, everywhere: NamedSharding, shape: tuple[int, int], dtype: np.dtype[Any]
) -> Callable[[jax.Array, jax.Array], Sequence[jax.Array]]:
    """Return the compiled program that takes WIDTH columns out of a block, from a given one on."""
    block = jax.ShapeDtypeStruct(shape, dtype, sharding=block_sharding(sharding))
    first = jax.ShapeDtypeStruct((), np.int32, sharding=everywhere)
    x64 = x64_enabled()
    compiled: list[Any] = []

    def columns(block: jax.Array, first: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jax.lax.dynamic_slice_in_dim(block, first, WIDTH))

    def work() -> None:
        owner: Any = jax if hasattr(jax, "enable_x64") else jax.experimental  # moved in jax 0.8
        with owner.enable_x64(x64), _undebugged():
            program = jax.jit(columns, out_shardings=(sharding,) * WIDTH)
            compiled.append(program.lower(block, first).compile())

    # A thread of its own has none of the settings, a mesh say, that the one that asks may have.
    thread = threading.Thread(target=work, name="jaxiter compiler", daemon=True)
    thread.start()
    thread.join()
    if not compiled:
        raise RuntimeError("the program that takes a wide table apart could not be compiled")
    take: Callable[[jax.Array, jax.Array], Sequence[jax.Array]] = compiled[0]
    return take
