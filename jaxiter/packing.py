"""Tables of many scalar columns: few transfers for all columns of a dtype, taken apart on devices.

A transfer a column costs more than the data. So columns of one number a row lie in blocks of 16 of
the same dtype, each of which goes to the devices as one array of shape (columns, rows). A compiled
program takes it apart: the same one for all blocks of a dtype, since its compilation takes some
100 ms for 16 columns, and several seconds for 200.

It is a computation over all devices, though no value crosses processes in it. So it is never
launched in the background: the consumer's own thread does that, in `next()`, in the same order on
all processes.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from jaxiter.casting import x64_enabled

WIDTH = 16  # columns of a block

Blocks = Mapping[tuple[int, ...], np.ndarray]
Unpack = Callable[[jax.Array], Sequence[jax.Array]]


def groups(columns: Sequence[tuple[np.dtype[Any], int]]) -> list[tuple[int, ...]]:
    """Return which columns lie in a block, for each block: the same on all processes.

    Args:
        columns: For each its dtype, and the number of its dimensions.
    """
    if len(columns) < WIDTH:
        return []
    by_dtype: dict[np.dtype[Any], list[int]] = {}
    for position, (dtype, dimensions) in enumerate(columns):
        if dimensions == 1:
            by_dtype.setdefault(dtype, []).append(position)
    return [
        tuple(positions[start : start + WIDTH])
        for positions in by_dtype.values()
        for start in range(0, len(positions) - WIDTH + 1, WIDTH)
    ]


def block_sharding(sharding: Sharding) -> NamedSharding | None:
    """Return the sharding of a block whose columns have `sharding`; None if there is none."""
    if not isinstance(sharding, NamedSharding) or len(sharding.spec) > 1:
        return None
    spec = PartitionSpec(None, *sharding.spec)
    return NamedSharding(sharding.mesh, spec, memory_kind=sharding.memory_kind)


@lru_cache(maxsize=32)
def unpacker(sharding: NamedSharding, shape: tuple[int, int], dtype: np.dtype[Any]) -> Unpack:
    """Return the compiled program that takes a block apart.

    Args:
        sharding: Of each column.
        shape: Of the block, a global array: (columns, rows).
        dtype: Of the block; JAX must be set to hold it.
    """
    whole = block_sharding(sharding)
    block = jax.ShapeDtypeStruct(shape, dtype, sharding=whole)
    x64 = x64_enabled()
    compiled: list[Any] = []

    def work() -> None:
        owner: Any = jax if hasattr(jax, "enable_x64") else jax.experimental  # moved in jax 0.8
        with owner.enable_x64(x64):
            program = jax.jit(tuple, out_shardings=(sharding,) * shape[0])
            compiled.append(program.lower(block).compile())

    # A thread of its own has none of the settings, a mesh say, that the one that asks may have.
    thread = threading.Thread(target=work, name="jaxiter compiler", daemon=True)
    thread.start()
    thread.join()
    if not compiled:
        raise RuntimeError("the program that takes a wide table apart could not be compiled")
    unpack: Unpack = compiled[0]
    return unpack
