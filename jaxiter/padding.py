"""Rows of padding, and batches of nothing else."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxiter.buffers import aligned_empty
from jaxiter.casting import assemble
from jaxiter.errors import DataError
from jaxiter.options import Options
from jaxiter.schema import Column, Schema
from jaxiter.site import Site


def check_padding(schema: Schema, options: Options, site: Site) -> None:
    """Check that each value of `paddings` can stand in each column that it applies to.

    Nothing is checked when nothing is padded: without `paddings`, or with `drop_last`.

    Raises:
        DataError: A value is not what the column's final dtype holds exactly (a float column may
            round it), or `paddings` leaves out a column.
    """
    if not options.pads:
        return
    for column in schema.columns:
        _fill_value(column, schema, options, site)


def padded(
    leaves: list[np.ndarray], schema: Schema, options: Options, site: Site
) -> list[np.ndarray]:
    """Return `leaves` with rows of padding after their own, `batch_size` rows in all.

    Args:
        leaves: One array of shape (rows, *trailing) a column, 0 < rows <= batch_size.
        schema: Of the same columns in the same order.
        options: With `paddings`.
        site: Named in errors.

    Returns:
        Arrays of shape (batch_size, *trailing); the given ones if they are full. The mask column
        is False on padding.

    Raises:
        DataError: As `check_padding` does.
    """
    if all(len(leaf) == options.batch_size for leaf in leaves):
        return leaves
    result = []
    for leaf, column in zip(leaves, schema.columns, strict=True):
        full = aligned_empty((options.batch_size, *column.shape), column.np_dtype)
        full[: len(leaf)] = leaf
        full[len(leaf) :] = _fill_value(column, schema, options, site)
        result.append(full)
    return result


def padding_only(schema: Schema, options: Options, site: Site) -> list[np.ndarray]:
    """Return a batch without a real row: arrays of shape (batch_size, *trailing), all padding.

    Raises:
        DataError: As `check_padding` does.
    """
    empty = [np.empty((0, *column.shape), column.np_dtype) for column in schema.columns]
    return padded(empty, schema, options, site)


def _fill_value(column: Column, schema: Schema, options: Options, site: Site) -> Any:
    """Return a scalar of the column's dtype."""
    if column.name == options.mask_column:
        return np.False_
    value: Any = options.paddings
    if isinstance(value, Mapping):
        if schema.is_bare and len(value) == 1:
            (value,) = value.values()
        else:
            value = value[column.name]
    try:
        return assemble([_as_array(value)], column.np_dtype, column.name, site)[0]
    except (DataError, OverflowError) as error:
        raise site.error(
            column.name,
            f"the padding {value!r} cannot stand in a column of dtype {column.dtype}. "
            "Give a value that the dtype holds, for this column alone if need be: "
            "paddings={'column': value, ...}.",
        ) from error


def _as_array(value: complex) -> np.ndarray:
    """Return `value` as an array of one entry that holds it exactly, or raise OverflowError."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        if float(value) != value:
            raise OverflowError
        value = float(value)
    return np.array([value])
