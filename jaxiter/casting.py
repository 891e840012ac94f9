"""Changes of dtype on the host, in numpy, that never change a value silently.

Integers and bools arrive exactly or raise. Floats may round to the nearest value of the new dtype,
but a finite number never becomes infinite, nor anything else NaN. The cast starts from the source's
own dtype: a device would narrow int64 to int32 first, and 2**40 would arrive as 0.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxiter.buffers import Empty, aligned_empty, is_immutable
from jaxiter.errors import DataError
from jaxiter.site import Site

# What JAX holds in place of a 64-bit dtype unless jax_enable_x64 is set.
_WITHOUT_X64 = {
    np.dtype(np.int64): np.dtype(np.int32),
    np.dtype(np.uint64): np.dtype(np.uint32),
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.complex64),
}
_WHY_UNSUPPORTED = {
    "U": "text. Encode it as numbers before the batch is made, or drop the column",
    "S": "bytes. Encode them as numbers before the batch is made, or drop the column",
    "T": "text. Encode it as numbers before the batch is made, or drop the column",
    "O": "Python objects, such as text, dates, or lists, which may be of unequal length. "
    "Pad lists to one length and np.stack them into one array of numbers, or drop the column",
    "M": "dates. Turn them into integers, say with .astype('int64'), or drop the column",
    "m": "durations. Turn them into integers, say with .astype('int64'), or drop the column",
}


def x64_enabled() -> bool:
    """Say whether JAX holds 64-bit dtypes, as set (jax_enable_x64) for the thread that calls."""
    return jax.dtypes.canonicalize_dtype(np.int64) == np.int64


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return 'bool', 'int' (of either sign), 'float' or 'complex'; '' for what JAX cannot hold."""
    if dtype.kind in "biufc":
        return {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}[dtype.kind]
    # The dtypes of ml_dtypes are of numpy's kind V, as are records, which JAX cannot hold.
    if dtype.type.__module__ == "ml_dtypes" and hasattr(jnp, dtype.name):
        return "int" if "int" in dtype.name else "float"
    return ""


def final_dtype(
    source: np.dtype[Any], wanted: np.dtype[Any] | None, x64: bool, column: str, site: Site
) -> np.dtype[Any]:
    """Return the dtype in which a column reaches the device.

    Args:
        source: The dtype that the column comes in.
        wanted: The dtype asked for by `dtypes`, if any.
        x64: Whether JAX holds 64-bit dtypes (`jax_enable_x64`).
        column: Named in errors.
        site: Named in errors.

    Raises:
        DataError: The column holds what JAX cannot hold.
    """
    target = _final(source, wanted, x64)
    if target is None:
        reason = _WHY_UNSUPPORTED.get(source.kind, "something that JAX arrays cannot hold")
        raise site.error(column, f"its dtype is {source}: {reason}.")
    return target


@lru_cache(maxsize=1024)
def _final(source: np.dtype[Any], wanted: np.dtype[Any] | None, x64: bool) -> np.dtype[Any] | None:
    return canonical(source if wanted is None else wanted, x64) if kind_of(source) else None


def canonical(dtype: np.dtype[Any], x64: bool) -> np.dtype[Any]:
    """Return the dtype that JAX holds in place of `dtype`, in this machine's byte order."""
    if dtype.kind in "fc" and dtype.itemsize > {"f": 8, "c": 16}[dtype.kind]:
        dtype = np.dtype(np.float64 if dtype.kind == "f" else np.complex128)
    dtype = dtype.newbyteorder("=")
    return dtype if x64 else _WITHOUT_X64.get(dtype, dtype)


def assemble(
    parts: list[np.ndarray],
    target: np.dtype[Any],
    column: str,
    site: Site,
    empty: Empty = aligned_empty,
    into: np.ndarray | None = None,
) -> np.ndarray:
    """Join rows of one column, in order, in their final dtype.

    Args:
        parts: Arrays of shape (rows_i, *trailing), one trailing shape; at least one.
        target: A dtype that `final_dtype` returned.
        column: Named in errors.
        site: Named in errors.
        empty: Makes the memory for a copy.
        into: Where the copy must go, if it must.

    Returns:
        An array of shape (sum of rows_i, *trailing), C-contiguous and of dtype `target`, over
        memory that nobody writes to again: the part itself if that can be said of it, else a
        64-byte aligned copy.

    Raises:
        DataError: A value would change, or trailing shapes differ.
    """
    first = parts[0]
    if (
        into is None
        and len(parts) == 1
        and first.dtype == target
        and first.flags.c_contiguous
        and is_immutable(first)
    ):
        return first
    if len(parts) > 1 and len(shapes := {part.shape[1:] for part in parts}) > 1:
        raise site.error(
            column,
            f"rows of the trailing shapes {' and '.join(map(str, sorted(shapes)))} meet in one "
            "batch. Pad them to one shape in the source.",
        )
    joined = into
    if joined is None:
        joined = empty((sum(map(len, parts)), *first.shape[1:]), target)
    start = 0
    for part in parts:
        out = joined if len(parts) == 1 else joined[start : start + len(part)]
        if part.dtype == target:
            np.copyto(out, part)
        else:
            _Copy(part, out, column, site, start).run()
        start += len(part)
    return joined


def assemble_block(
    columns: Sequence[list[np.ndarray]],
    block: np.ndarray,
    names: Sequence[str],
    site: Site,
) -> None:
    """Join rows of scalar columns as `assemble` does, each column into a row of `block`.

    Args:
        columns: Of one dtype; for each its parts in order, of shape (rows_i,).
        block: Of shape (columns, sum of rows_i), C-contiguous, of the columns' final dtype.
        names: Of the columns, named in errors.
        site: Named in errors.

    Raises:
        DataError: A value would change.
    """
    parts = [part for column in columns for part in column]
    if parts[0].dtype == block.dtype:
        np.concatenate(parts, out=block.reshape(-1))
        return
    try:
        _Copy(np.concatenate(parts).reshape(block.shape), block, "", site, 0).run()
    except DataError:
        for column, row, name in zip(columns, block, names, strict=True):
            assemble(column, block.dtype, name, site, into=row)  # raises for the one that is bad
        raise


class _Copy(NamedTuple):
    """Writes `source` into `out`, of the same shape, or raises if a value would change."""

    source: np.ndarray
    out: np.ndarray
    column: str
    site: Site
    first_row: int

    def run(self) -> None:
        before, after = kind_of(self.source.dtype), kind_of(self.out.dtype)
        if self.source.dtype == self.out.dtype or self.source.size == 0:
            np.copyto(self.out, self.source)
        elif before == "complex" and after != "complex":
            self._refuse(self.source.imag != 0)
            self._replace(source=self.source.real).run()
        elif after in ("bool", "int"):
            self._copy_whole(before)
        elif before in ("bool", "int"):
            self._copy_exact()
        else:
            self._copy_rounded()

    def _copy_whole(self, before: str) -> None:
        """Copy whole numbers, of any dtype, into integers or bools."""
        source = self.source
        if before == "float":
            # Wide enough for any bound; longdouble stays as it is.
            source = source if source.dtype.itemsize > 8 else source.astype(np.float64)
            with np.errstate(invalid="ignore"):
                self._refuse(~(np.isfinite(source) & (np.trunc(source) == source)))
        elif source.dtype.kind in "bV":
            source = source.astype(np.int16)
        low, high = _bounds(self.out.dtype)
        # Python compares an int with a float exactly, where numpy would round an int64 first.
        if source.min().item() < low or source.max().item() > high:
            outside = np.frompyfunc(lambda value: not low <= value <= high, 1, 1)(source)
            self._refuse(outside.astype(bool))
        np.copyto(self.out, source, casting="unsafe")

    def _copy_exact(self) -> None:
        """Copy integers or bools into floats or complex numbers that hold each exactly."""
        source = self.source if self.source.dtype.kind in "iu" else self.source.astype(np.int16)
        with np.errstate(over="ignore", invalid="ignore"):
            np.copyto(self.out, source, casting="unsafe")
        arrived = self.out.real if self.out.dtype.kind == "c" else self.out
        digits = ml_dtypes.finfo(arrived.dtype).nmant + 1
        largest = max(abs(source.min().item()), abs(source.max().item()))
        # From bfloat16 on, each float dtype holds all whole numbers up to its digits.
        if digits >= 8 and largest <= 2**digits:
            return
        # Others are held if their digits, but for trailing zeros, are few enough.
        magnitude = source.astype(np.uint64)
        magnitude = np.where(source < 0, ~magnitude + np.uint64(1), magnitude)
        lowest_bit = np.maximum(magnitude & (~magnitude + np.uint64(1)), np.uint64(1))
        exact = magnitude // lowest_bit < np.uint64(2**digits)
        self._refuse(~exact | (arrived.astype(np.float64) != source.astype(np.float64)))

    def _copy_rounded(self) -> None:
        """Copy floats or complex numbers into a float or complex dtype that may hold fewer."""
        source, out = self.source, self.out
        if not np.can_cast(source.dtype, out.dtype, "unsafe"):
            source = source.astype(np.float32)  # holds any of the small floats of ml_dtypes
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            np.copyto(out, source, casting="unsafe")
        if out.dtype.kind != "c":
            self._check_rounding(source, out)
            return
        self._check_rounding(source.real, out.real)
        if source.dtype.kind == "c":
            self._check_rounding(source.imag, out.imag)

    def _check_rounding(self, number: np.ndarray, arrived: np.ndarray) -> None:
        """Check that each number stayed finite, the same infinity, or NaN."""
        if number.dtype == arrived.dtype:
            return
        if not _has_nan(arrived.dtype):
            # Too large a number becomes the largest, infinity and NaN become any.
            largest = float(ml_dtypes.finfo(arrived.dtype).max)
            self._refuse(~(np.abs(number.astype(np.float64)) <= largest))
        elif not np.isfinite(arrived).all():
            with np.errstate(invalid="ignore"):
                same_infinity = np.isinf(arrived) & ((arrived > 0) == (number > 0))
                same = np.where(np.isinf(number), same_infinity, np.isfinite(arrived))
                self._refuse(~np.where(np.isnan(number), np.isnan(arrived), same))

    def _refuse(self, bad: np.ndarray) -> None:
        """Raise for the first value that is marked in `bad`, if any is."""
        if not bad.any():
            return
        where = np.unravel_index(int(bad.argmax()), bad.shape)
        value = self.source[where].item()
        others = int(bad.sum()) - 1
        source, target = self.source.dtype, self.out.dtype
        way_out = "choose another of `dtypes`, or round, clip or convert the column in the source"
        if _WITHOUT_X64.get(source.newbyteorder("=")) == target:
            way_out = f"set jax_enable_x64 to keep {source}, or {way_out}"
        raise self.site.error(
            self.column,
            f"{value!r} in row {self.first_row + int(where[0])}"
            f"{f' (and {others} more)' if others else ''} cannot be held by {target.name}; "
            f"values ({source}) are never changed silently. To go on, {way_out}.",
        )


@cache
def _bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 1
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


@cache
def _has_nan(dtype: np.dtype[Any]) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.isnan(np.array([np.nan]).astype(dtype))[0])
