"""Tests of jaxiter.padding."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxiter.errors import DataError
from jaxiter.options import make_options
from jaxiter.padding import check_padding, padded, padding_only
from jaxiter.schema import Schema, schema_of
from jaxiter.site import Site
from jaxiter.trees import flatten

SITE = Site(process=1, batch=2)


def schema(**columns: np.ndarray) -> Schema:
    """Return the schema of a dict of columns."""
    tree, leaves = flatten(columns, SITE)
    return schema_of(tree, leaves, SITE)


def column(dtype: str) -> Schema:
    """Return the schema of one column 'x'."""
    return schema(x=np.zeros(1, np.dtype(dtype)))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint8", -1),
        ("uint8", 256),
        ("uint8", 0.5),
        ("int32", 2**31),
        ("int32", 0.5),
        ("int32", math.nan),
        ("int32", math.inf),
        ("int32", 2**70),
        ("int8", 1j),
        ("bool", 2),
        ("bool", -1),
        ("bool", 0.5),
        ("float32", 2**24 + 1),
        ("float32", 1e300),
        ("float32", 10**400),
        ("float64", 2**70 + 1),
        ("float32", 1j),
        ("bfloat16", 257),
        ("float8_e4m3fn", 1000.0),
        ("float8_e4m3fn", math.inf),
    ],
)
def test_a_padding_that_the_dtype_cannot_hold_raises(dtype: Any, value: Any) -> None:
    """The error names column, dtype and value, before anything is padded."""
    with pytest.raises(DataError, match=f"column 'x': the padding .* dtype {dtype}") as caught:
        check_padding(column(dtype), make_options(paddings=value), SITE)

    error = caught.value
    assert (error.column, error.process, error.batch) == ("x", 1, 2)
    assert repr(value) in str(error)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint8", 255),
        ("uint8", True),
        ("int32", -1.0),
        ("int32", -(2**31)),
        ("uint64", 2**64 - 1),
        ("bool", 0),
        ("bool", True),
        ("float32", -100),
        ("float32", 0.1),
        ("float32", math.nan),
        ("float32", -math.inf),
        ("float32", 2**70),
        ("bfloat16", 0.1),
        ("float8_e4m3fn", math.nan),
        ("complex64", 1j),
    ],
)
def test_a_padding_that_the_dtype_holds_is_used(dtype: Any, value: Any) -> None:
    """Whole numbers and bools arrive exactly; a float is rounded as the column's own are."""
    checked = column(dtype)
    check_padding(checked, make_options(paddings=value), SITE)

    (leaf,) = padding_only(checked, make_options(paddings=value, batch_size=3), SITE)

    expected = np.full(3, float(value) if value == 2**70 else value, np.dtype(dtype))
    assert leaf.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(leaf.astype(complex), expected.astype(complex))


@given(st.integers(1, 6), st.integers(1, 6))
def test_padding_comes_after_the_real_rows(rows: Any, batch_size: Any) -> None:
    """Real rows keep their place and values; the rest is the column's own padding."""
    rows = min(rows, batch_size)
    leaves = [
        np.arange(rows, dtype=np.int32),
        np.ones(rows, bool),
        np.ones((rows, 2), np.float32),
    ]
    described = schema(a=leaves[0], m=leaves[1], z=leaves[2])
    options = make_options(batch_size=batch_size, paddings={"a": -7, "z": 0.5}, mask_column="m")

    a, m, z = padded(leaves, described, options, SITE)

    short = batch_size - rows
    assert a.tolist() == [*range(rows), *[-7] * short]
    assert m.tolist() == [True] * rows + [False] * short
    assert z.tolist() == [[1, 1]] * rows + [[0.5, 0.5]] * short
    assert [a.dtype, m.dtype, z.dtype] == [np.int32, np.bool_, np.float32]


def test_a_full_batch_is_not_copied() -> None:
    """The leaves of a full batch are handed on."""
    leaves = [np.zeros(4, np.int32)]

    assert padded(leaves, column("int32"), make_options(batch_size=4, paddings=0), SITE) is leaves


def test_padding_alone_has_the_trailing_shapes_of_the_schema() -> None:
    """A batch without a real row has the peers' shapes and dtypes."""
    described = schema(x=np.zeros((1, 4, 3), np.float16), y=np.zeros((1, 0), np.int8))

    x, y = padding_only(described, make_options(batch_size=2, paddings=0), SITE)

    assert (x.shape, x.dtype.name) == ((2, 4, 3), "float16")
    assert (y.shape, y.dtype.name) == ((2, 0), "int8")


def test_nothing_is_checked_where_nothing_is_padded() -> None:
    """drop_last wins over paddings, so a padding that does not fit is no error."""
    check_padding(column("uint8"), make_options(paddings=-1, drop_last=True), SITE)
    check_padding(column("uint8"), make_options(), SITE)


def test_a_mapping_of_one_entry_serves_a_bare_array() -> None:
    """As with Ray, the name does not count for a batch that is one array."""
    tree, leaves = flatten(np.zeros(1, np.int32), SITE)
    bare = schema_of(tree, leaves, SITE)

    (leaf,) = padding_only(bare, make_options(batch_size=2, paddings={"any": 5}), SITE)

    assert leaf.tolist() == [5, 5]
