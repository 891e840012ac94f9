"""JAX batches from uneven shards on many processes: no hang, and a reason for every stop."""

from jaxiter.api import iter_jax_batches
from jaxiter.batches import BatchIterator, JaxBatches
from jaxiter.errors import (
    ClosedError,
    DataError,
    InternalError,
    JaxIterError,
    MismatchError,
    OptionError,
    PeerLeftError,
    RendezvousError,
    SourceError,
    SourceUsedError,
    SyncTimeoutError,
    UnevenError,
)
from jaxiter.placement import row_shard
from jaxiter.stats import EpochStats

__all__ = [
    "BatchIterator",
    "ClosedError",
    "DataError",
    "EpochStats",
    "InternalError",
    "JaxBatches",
    "JaxIterError",
    "MismatchError",
    "OptionError",
    "PeerLeftError",
    "RendezvousError",
    "SourceError",
    "SourceUsedError",
    "SyncTimeoutError",
    "UnevenError",
    "iter_jax_batches",
    "row_shard",
]
