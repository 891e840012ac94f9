"""The one function that users call."""

from typing import Any, Literal

from jax.sharding import Sharding

from jaxiter.batches import JaxBatches, refuse
from jaxiter.errors import OptionError
from jaxiter.options import CollateFn, make_options


def iter_jax_batches(
    source: Any,
    *,
    prefetch_batches: int = 1,
    batch_size: int = 256,
    dtypes: Any = None,
    collate_fn: CollateFn | None = None,
    drop_last: bool = False,
    local_shuffle_buffer_size: int | None = None,
    local_shuffle_seed: int | None = None,
    synchronize_batches: bool = True,
    paddings: Any = None,
    sharding: Sharding | None = None,
    mask_column: str | None = None,
    prefetch_to_device: int = 2,
    sync_timeout_s: float | None = 600.0,
    on_peer_loss: Literal["raise", "abort"] = "raise",
    name: str | None = None,
) -> JaxBatches:
    """Iterate over this process's shard in global batches, in step with all other processes.

    Call it on every process, in the same order. With `count` splits of the rows (one a process,
    unless the sharding replicates rows), batch k is on every process a tree of global `jax.Array`s
    of shape (batch_size * count, *trailing), with the same dtypes and sharding. Either all
    processes get the same number of batches, or all raise an error of the same kind after as many.

    Arguments have the names and meanings of Ray's `DataIterator.iter_jax_batches`, and its defaults
    but for `synchronize_batches`.

    Args:
        source: A Ray `Dataset` or `DataIterator`; an iterable of host batches (`dict[str,
            np.ndarray]`, or one `np.ndarray`, of shape (rows, *trailing), any number of rows); or a
            function without arguments that returns a fresh one. An iterator serves one epoch.
        prefetch_batches: Batches read ahead of the consumer on the host. Small batches are read
            further ahead where that hides the agreement: up to 256 of them, and 64 MiB.
        batch_size: Rows of this process in a batch. A multiple of its row shards.
        dtypes: A dtype for all columns, or a mapping from column to dtype. bfloat16 and fp8 too.
            Integers and bools arrive exactly or raise; floats may round, but stay finite.
        collate_fn: Turns the rows of one batch into an array, or a tree (dict, tuple, registered
            dataclass) of arrays, of as many rows.
        drop_last: Deliver the minimum over processes of full batches; leave out the rest.
        local_shuffle_buffer_size: Rows that Ray shuffles among; for a Ray source.
        local_shuffle_seed: For that shuffle.
        synchronize_batches: Agree with the other processes. If False, each process yields its own
            batches alone.
        paddings: A number for all columns, or a mapping from column to number, to fill up short
            batches, and whole ones where a process has run out of rows. `drop_last` wins over it.
        sharding: Any sharding whose first dimension splits rows; by default all devices along one
            axis `data`.
        mask_column: The name of a bool column to add: True on real rows, False on padding.
        prefetch_to_device: Batches placed ahead of the consumer.
        sync_timeout_s: Seconds that a consumer waits for another process before that is an error
            on all; None for no limit.
        on_peer_loss: "abort" ends this process, with status 75, if another has left, died or
            stopped while this one is stuck in its own step; "raise" leaves that to the user.
        name: Tells this iterator from others that are in use at the same time.

    Returns:
        An iterable. Each `iter()` is a new epoch.

    Raises:
        OptionError: An argument cannot be used; names it, the rule and the value.
        TypeError: `source` is nothing that can be read.
    """
    try:
        options = make_options(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            dtypes=dtypes,
            collate_fn=collate_fn,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
            synchronize_batches=synchronize_batches,
            paddings=paddings,
            sharding=sharding,
            mask_column=mask_column,
            prefetch_to_device=prefetch_to_device,
            sync_timeout_s=sync_timeout_s,
            on_peer_loss=on_peer_loss,
            name=name,
        )
        return JaxBatches(source, options)
    except (OptionError, TypeError) as error:
        refuse(name, error)
        raise
