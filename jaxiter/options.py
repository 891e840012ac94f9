"""Every argument, validated once, before any data is read."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import ml_dtypes  # noqa: F401  # makes numpy know bfloat16 and fp8 by name
import numpy as np
from jax.sharding import Sharding

from jaxiter.casting import kind_of
from jaxiter.errors import OptionError

Scalar: TypeAlias = bool | int | float | complex
Dtypes: TypeAlias = "np.dtype[Any] | Mapping[str, np.dtype[Any] | None] | None"
Paddings: TypeAlias = "Scalar | Mapping[str, Scalar] | None"
CollateFn: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class Options:
    """The arguments of `iter_jax_batches`, made by `make_options`.

    Attributes:
        dtypes: One dtype for all columns, or one a column; None leaves the source's.
        paddings: One Python number for all columns, or one a column; None: no padding.
        sharding: None is Ray's: all devices along one axis.
        sync_timeout_s: Seconds; infinity for no limit.
    """

    prefetch_batches: int
    batch_size: int
    dtypes: Dtypes
    collate_fn: CollateFn | None
    drop_last: bool
    local_shuffle_buffer_size: int | None
    local_shuffle_seed: int | None
    synchronize_batches: bool
    paddings: Paddings
    sharding: Sharding | None
    mask_column: str | None
    prefetch_to_device: int
    sync_timeout_s: float
    on_peer_loss: Literal["raise", "abort"]
    name: str | None

    @property
    def pads(self) -> bool:
        """Whether short batches are filled up: `drop_last` wins over `paddings`."""
        return self.paddings is not None and not self.drop_last

    def agreed(self) -> dict[str, Any]:
        """Return, as JSON values, what must be the same on all processes."""
        from jaxiter.placement import describe_sharding

        return {
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "paddings": _map_values(self.paddings, _number_as_json),
            "dtypes": _map_values(self.dtypes, lambda dtype: dtype and dtype.name),
            "sharding": describe_sharding(self.sharding),
            "mask_column": self.mask_column,
            "synchronize_batches": self.synchronize_batches,
        }


def make_options(
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
) -> Options:
    """Validate the arguments of `iter_jax_batches`, which says what each means.

    Raises:
        OptionError: A value is out of range or of the wrong type; names argument, rule and value.
    """
    if collate_fn is not None and not callable(collate_fn):
        raise _wrong("collate_fn", collate_fn, "must be callable")
    if sharding is not None and not isinstance(sharding, Sharding):
        raise _wrong(
            "sharding", sharding, "must be a jax.sharding.Sharding, such as a NamedSharding"
        )
    if on_peer_loss not in ("raise", "abort"):
        raise _wrong("on_peer_loss", on_peer_loss, "must be 'raise' or 'abort'")
    return Options(
        prefetch_batches=_whole("prefetch_batches", prefetch_batches, 0),
        batch_size=_whole("batch_size", batch_size, 1),
        dtypes=_each("dtypes", dtypes, _dtype),
        collate_fn=collate_fn,
        drop_last=_flag("drop_last", drop_last),
        local_shuffle_buffer_size=_optional_whole(
            "local_shuffle_buffer_size", local_shuffle_buffer_size, 1
        ),
        local_shuffle_seed=_optional_whole("local_shuffle_seed", local_shuffle_seed, 0),
        synchronize_batches=_flag("synchronize_batches", synchronize_batches),
        paddings=_each("paddings", paddings, _padding),
        sharding=sharding,
        mask_column=_optional_name("mask_column", mask_column),
        prefetch_to_device=_whole("prefetch_to_device", prefetch_to_device, 1),
        sync_timeout_s=_seconds("sync_timeout_s", sync_timeout_s),
        on_peer_loss=on_peer_loss,
        name=_optional_name("name", name),
    )


def _whole(argument: str, value: Any, at_least: int) -> int:
    rule = f"must be a whole number of at least {at_least}"
    if isinstance(value, bool | np.bool_):
        raise _wrong(argument, value, rule)
    try:
        number = operator.index(value)
    except TypeError:
        raise _wrong(argument, value, rule) from None
    if number < at_least:
        raise _wrong(argument, value, rule)
    return number


def _optional_whole(argument: str, value: Any, at_least: int) -> int | None:
    return None if value is None else _whole(argument, value, at_least)


def _flag(argument: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise _wrong(argument, value, "must be True or False")
    return bool(value)


def _optional_name(argument: str, value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise _wrong(argument, value, "must be a non-empty str, or None")
    return value


def _seconds(argument: str, value: Any) -> float:
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise _wrong(argument, value, "must be a number of seconds above 0, or None for no limit")
    return float(value)


def _each(argument: str, value: Any, convert: Callable[[str, Any], Any]) -> Any:
    """Convert one value for all columns, or each of a mapping from column to value."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return convert(argument, value)
    if not value:
        raise _wrong(argument, value, "must name a column, or be None")
    converted: dict[str, Any] = {}
    for column, item in value.items():
        if type(column) not in (str, int):
            raise _wrong(argument, value, f"names columns by str, but {column!r} is not one")
        if item is None and argument == "dtypes":
            converted[str(column)] = None
        else:
            converted[str(column)] = convert(f"{argument}[{column!r}]", item)
    return converted


def _dtype(argument: str, value: Any) -> np.dtype[Any]:
    rule = "must be a dtype that JAX arrays can hold"
    try:
        dtype: np.dtype[Any] = np.dtype(value)
    except (TypeError, ValueError):
        raise _wrong(argument, value, rule) from None
    if value is None or not kind_of(dtype):
        raise _wrong(argument, value, rule)
    return dtype.newbyteorder("=")


def _padding(argument: str, value: Any) -> Scalar:
    if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0:
        value = value.item()
    if not isinstance(value, bool | int | float | complex):
        raise _wrong(argument, value, "must be a number or a bool")
    return value


def _wrong(argument: str, value: Any, rule: str) -> OptionError:
    name, _, _ = argument.partition("[")
    return OptionError(f"{argument} {rule}; got {value!r}.", argument=name, value=value)


def _map_values(value: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {column: convert(value[column]) for column in sorted(value)}
    return None if value is None else convert(value)


def _number_as_json(value: Scalar) -> Any:
    """Return one JSON value for numbers that are equal, whatever their type; NaN equals NaN."""
    if isinstance(value, complex):
        return repr(value)
    if not math.isfinite(value):
        return repr(float(value))
    return int(value) if value == int(value) else value
