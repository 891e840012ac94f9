"""Sources: Ray datasets and their shards, any iterable of host batches, or what opens one.

Ray is imported only when a source is Ray's, which then has imported it already.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jaxiter.errors import OptionError, SourceUsedError
from jaxiter.options import CollateFn, Options

if TYPE_CHECKING:  # batches.py imports this module
    from jaxiter.batches import JaxBatches
    from jaxiter.stats import EpochStats

_METHOD = "iter_jax_batches"
# Ray's own methods by class, while `install` has replaced them; None where there was none.
_replaced: dict[type, Any] = {}


def open_source(source: Any, options: Options) -> Callable[[], Iterator[Any]]:
    """Return a function that opens `source` for one epoch.

    Args:
        source: A Ray `Dataset` or `DataIterator`; an iterable of host batches (`dict[str,
            np.ndarray]`, one `np.ndarray`, or a tree of them; Arrow tables or pandas frames if
            there is a `collate_fn` that takes them); or a function without arguments that returns
            such an iterable, fresh for each epoch. An iterator serves one epoch.
        options: How Ray reads: `batch_size`, `prefetch_batches`, the local shuffle, and
            `collate_fn`, which decides the format.

    Returns:
        A function that raises SourceUsedError where an iterator is to be read twice.

    Raises:
        TypeError: `source` is none of these.
        OptionError: `collate_fn` is not one of Ray's kinds, for a Ray source; a local shuffle of a
            source that is not Ray's.
    """
    if is_ray_source(source):
        arguments = {
            "prefetch_batches": options.prefetch_batches,
            "batch_size": options.batch_size,
            "batch_format": batch_format(options.collate_fn),
            "local_shuffle_buffer_size": options.local_shuffle_buffer_size,
            "local_shuffle_seed": options.local_shuffle_seed,
        }
        return lambda: iter(source.iter_batches(**arguments))
    if options.local_shuffle_buffer_size is not None:
        raise OptionError(
            "local_shuffle_buffer_size needs a Ray Dataset or DataIterator; shuffle other sources "
            f"before they are handed over. Got {options.local_shuffle_buffer_size!r}.",
            argument="local_shuffle_buffer_size",
            value=options.local_shuffle_buffer_size,
        )
    if isinstance(source, Iterator):
        return _once(source)
    if isinstance(source, Iterable):
        if isinstance(source, Mapping | str | bytes) or hasattr(source, "__array__"):
            raise TypeError(
                f"source is one {type(source).__name__}; it must be an iterable of batches, "
                "such as a list of them."
            )
        return lambda: iter(source)
    if callable(source):
        return lambda: iter(source())
    raise TypeError(
        "source must be a Ray Dataset or DataIterator, an iterable of host batches, or a function "
        f"that returns one; got {type(source).__name__}."
    )


def is_ray_source(source: Any) -> bool:
    """Say whether `source` is a Ray `Dataset` or `DataIterator`, without importing Ray."""
    ray_data = sys.modules.get("ray.data")
    return ray_data is not None and isinstance(source, ray_data.Dataset | ray_data.DataIterator)


def batch_format(collate_fn: CollateFn | None) -> str:
    """Return the format in which Ray reads for `collate_fn`: 'numpy', 'pyarrow' or 'pandas'.

    Raises:
        OptionError: It is of none of Ray's kinds, as with Ray's own iterator.
    """
    from ray.data.collate_fn import (
        ArrowBatchCollateFn,
        NumpyBatchCollateFn,
        PandasBatchCollateFn,
    )

    if collate_fn is None or isinstance(collate_fn, NumpyBatchCollateFn):
        return "numpy"
    if isinstance(collate_fn, ArrowBatchCollateFn):
        return "pyarrow"
    if isinstance(collate_fn, PandasBatchCollateFn):
        return "pandas"
    raise OptionError(
        "collate_fn must be an instance of a subclass of ArrowBatchCollateFn, NumpyBatchCollateFn "
        f"or PandasBatchCollateFn (ray.data.collate_fn) for a Ray source; got {collate_fn!r}.",
        argument="collate_fn",
        value=collate_fn,
    )


def install() -> None:
    """Put jaxiter behind Ray's `Dataset.iter_jax_batches` and `DataIterator.iter_jax_batches`.

    For this process; call it in each process that iterates, say at the top of a training function.
    The methods take Ray's arguments and those of `jaxiter.iter_jax_batches`, with jaxiter's
    defaults: `synchronize_batches` is True. As with Ray, what they return is an iterator, a
    `OneEpoch`: it serves one epoch, which begins with `iter()` or the first `next()`. A second
    call of `install` changes nothing.

    Raises:
        ImportError: Ray Data is not there.
    """
    from ray.data import DataIterator, Dataset

    for cls in (Dataset, DataIterator):
        if cls not in _replaced:
            original = vars(cls).get(_METHOD)
            _replaced[cls] = original
            setattr(cls, _METHOD, _method(original))


def uninstall() -> None:
    """Give Ray its own methods back; without `install` nothing happens."""
    while _replaced:
        cls, original = _replaced.popitem()
        if original is None:
            delattr(cls, _METHOD)
        else:
            setattr(cls, _METHOD, original)


class OneEpoch(Iterator[Any]):
    """What Ray's method names return after `install`: the batches of one epoch, as from Ray.

    Once it is over, closed or failed, there are no more: a second loop over it gets nothing.
    """

    def __init__(self, batches: "JaxBatches") -> None:
        self._batches = batches
        self._epoch: Iterator[Any] | None = None
        self._lock = threading.Lock()

    def __iter__(self) -> "OneEpoch":
        """Begin the epoch, so that a loop that is left before its first batch is known to peers.

        Raises:
            RendezvousError: There are several processes and no way to agree with them.
        """
        self._begun()
        return self

    def __next__(self) -> Any:
        """Return the next batch; raises as `jaxiter.iter_jax_batches` says."""
        return next(self._begun())

    def close(self) -> None:
        """End the epoch; peers learn that this process left. One not begun reads nothing."""
        with self._lock:
            if self._epoch is None:
                self._epoch = iter(())
        self._batches.close()

    def stats(self) -> "tuple[EpochStats, ...]":
        """Return the books of the epoch as they stand now; nothing before it has begun."""
        return self._batches.stats()

    def _begun(self) -> Iterator[Any]:
        with self._lock:
            if self._epoch is None:
                self._epoch = iter(self._batches)
            return self._epoch


def _method(original: Any) -> Callable[..., OneEpoch]:
    def iter_jax_batches(self: Any, **arguments: Any) -> OneEpoch:
        import jaxiter

        # Arguments are checked here, as Ray does, and not at the first `next()`.
        return OneEpoch(jaxiter.iter_jax_batches(self, **arguments))

    if original is not None:
        functools.update_wrapper(
            iter_jax_batches, original, assigned=("__qualname__", "__module__")
        )
    return iter_jax_batches


def _once(source: Iterator[Any]) -> Callable[[], Iterator[Any]]:
    unused = [source]

    def opened() -> Iterator[Any]:
        if not unused:
            raise SourceUsedError(
                "the source is an iterator, which can be read once, and it has been. For several "
                "epochs pass an iterable, or a function that returns a fresh iterator."
            )
        return unused.pop()

    return opened
