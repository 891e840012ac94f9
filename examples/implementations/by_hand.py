"""The loop that Ray's guides show without `iter_jax_batches`: read, then place by hand."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from examples.implementations.memory import in_batches


def iter_jax_batches(
    source: Any,
    *,
    batch_size: int = 256,
    prefetch_batches: int = 1,
    drop_last: bool = False,
    local_shuffle_buffer_size: int | None = None,
    local_shuffle_seed: int | None = None,
    synchronize_batches: bool = False,  # noqa: ARG001  there is nothing that would do it
) -> Iterator[Any]:
    """Yield global arrays, each process's rows in their place; processes know nothing of others."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    if hasattr(source, "iter_batches"):  # a Ray dataset or its iterator
        batches = source.iter_batches(
            batch_size=batch_size,
            prefetch_batches=prefetch_batches,
            drop_last=drop_last,
            batch_format="numpy",
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
        )
    else:  # the suite's sources in memory emit pieces of any size
        batches = in_batches(source, batch_size, drop_last)

    def place(array: Any) -> Any:
        return jax.make_array_from_process_local_data(sharding, array)

    for batch in batches:
        yield (
            place(batch)
            if isinstance(batch, np.ndarray)
            else {name: place(column) for name, column in batch.items()}
        )
