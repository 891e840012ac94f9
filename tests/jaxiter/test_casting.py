"""Tests of jaxiter.casting."""

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxiter.casting import assemble, canonical, final_dtype, kind_of, x64_enabled
from jaxiter.errors import DataError
from jaxiter.site import Site

SITE = Site(process=3, batch=7)
INTS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64", "bfloat16")]
FP8 = [np.dtype(name) for name in dir(ml_dtypes) if name.startswith("float8")]
SMALL_INTS = [np.dtype("int4"), np.dtype("uint4")]
NARROW_FLOATS = [np.dtype("float4_e2m1fn"), np.dtype("float6_e2m3fn"), np.dtype("float6_e3m2fn")]
BOOL = np.dtype(bool)


def cast(values: Any, target: Any) -> np.ndarray:
    """Cast one part to `target`, as column 'x'."""
    return assemble([np.asarray(values)], np.dtype(target), "x", SITE)


def whole_numbers(dtype: np.dtype[Any]) -> st.SearchStrategy[int]:
    """Integers of `dtype`, mostly near powers of two, where exactness ends."""
    info = ml_dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    near = st.builds(
        lambda sign, power, off: sign * 2**power + off,
        st.sampled_from([-1, 1]),
        st.integers(0, 64),
        st.integers(-3, 3),
    )
    return st.one_of(near.filter(lambda n: low <= n <= high), st.integers(low, high))


@given(st.data(), st.sampled_from(INTS + SMALL_INTS), st.sampled_from(INTS + SMALL_INTS + [BOOL]))
def test_ints_reach_an_int_or_bool_dtype_exactly_or_raise(
    data: Any, source: Any, target: Any
) -> None:
    """A list of ints arrives as it is if, and only if, each is within the bounds of the target."""
    numbers = data.draw(st.lists(whole_numbers(source), min_size=1, max_size=5))
    bounds = (
        (0, 1) if target == BOOL else (ml_dtypes.iinfo(target).min, ml_dtypes.iinfo(target).max)
    )
    fits = all(bounds[0] <= number <= bounds[1] for number in numbers)

    if not fits:
        with pytest.raises(DataError, match="column 'x'"):
            cast(np.array(numbers, source), target)
        return
    result = cast(np.array(numbers, source), target)
    assert result.dtype == target
    assert [int(value) for value in result] == numbers


@given(st.data(), st.sampled_from(INTS + SMALL_INTS), st.sampled_from(FLOATS + FP8 + NARROW_FLOATS))
def test_ints_reach_a_float_dtype_exactly_or_raise(data: Any, source: Any, target: Any) -> None:
    """An int arrives if, and only if, the float nearest to it is the same number."""
    number = data.draw(whole_numbers(source))
    with np.errstate(all="ignore"):
        wide = np.uint64 if number >= 2**63 else np.int64
        nearest = float(np.array([number], wide).astype(target)[0])
    exact = math.isfinite(nearest) and Fraction(nearest) == number

    if exact:
        assert float(cast(np.array([number], source), target)[0]) == number
    else:
        with pytest.raises(DataError, match="never changed silently"):
            cast(np.array([number], source), target)


@given(st.data(), st.sampled_from([*FLOATS, *FP8]), st.sampled_from(INTS + SMALL_INTS + [BOOL]))
def test_floats_reach_an_int_or_bool_dtype_exactly_or_raise(
    data: Any, source: Any, target: Any
) -> None:
    """A float becomes an int if, and only if, it is whole and within the bounds of the target."""
    drawn = data.draw(st.one_of(st.floats(), whole_numbers(np.dtype(np.int64)).map(float)))
    with np.errstate(all="ignore"):
        value = np.array([drawn]).astype(source)
    number = float(value[0])
    bounds = (
        (0, 1) if target == BOOL else (ml_dtypes.iinfo(target).min, ml_dtypes.iinfo(target).max)
    )
    fits = math.isfinite(number) and number.is_integer() and bounds[0] <= int(number) <= bounds[1]

    if fits:
        assert int(cast(value, target)[0]) == number
    else:
        with pytest.raises(DataError, match="column 'x'"):
            cast(value, target)


@given(
    st.lists(st.floats(), min_size=1, max_size=4),
    st.sampled_from(FLOATS),
    st.sampled_from(FLOATS + FP8 + NARROW_FLOATS),
)
def test_floats_may_round_but_stay_finite_or_nan_or_infinite(
    numbers: Any, source: Any, target: Any
) -> None:
    """What arrives is rounded as by numpy; what would become another kind of value raises."""
    with np.errstate(all="ignore"):
        values = np.array(numbers).astype(source)
        rounded = values.astype(target).astype(np.float64)
    before = values.astype(np.float64)
    largest = float(ml_dtypes.finfo(target).max)
    step = largest / 2 ** ml_dtypes.finfo(target).nmant
    kept = (
        ((np.isfinite(before) & np.isfinite(rounded)) & (np.abs(before) <= largest + step / 2))
        | (np.isnan(before) & np.isnan(rounded))
        | (np.isinf(before) & (before == rounded))
    )
    if target in NARROW_FLOATS:  # no infinity: what is beyond the largest is cut off to it
        kept &= np.abs(before) <= largest

    if kept.all():
        np.testing.assert_array_equal(cast(values, target).astype(np.float64), rounded)
    else:
        with pytest.raises(DataError, match="column 'x'"):
            cast(values, target)


@pytest.mark.parametrize("target", [*INTS, *SMALL_INTS, *FLOATS, np.dtype(np.complex64)])
def test_bools_become_zeros_and_ones(target: Any) -> None:
    """False and True arrive as 0 and 1 in every dtype of numbers."""
    result = cast([False, True], target)

    assert result.dtype == target
    assert [complex(value) for value in result] == [0, 1]


@pytest.mark.parametrize("value", [2**31, 2**40, -(2**31) - 1])
def test_int64_beyond_int32_raises_without_x64(value: Any) -> None:
    """An int64 that int32 cannot hold raises; the error names all that one needs to find it."""
    column = np.array([0, 1, value], np.int64)
    target = final_dtype(column.dtype, None, False, "ids", SITE)

    with pytest.raises(DataError) as caught:
        assemble([column], target, "ids", SITE)

    error = caught.value
    assert (error.column, error.process, error.batch) == ("ids", 3, 7)
    for part in ("process 3", "batch 7", "column 'ids'", str(value), "row 2", "int32", "x64"):
        assert part in str(error)


def test_a_wide_id_reaches_float32_without_passing_int32() -> None:
    """The cast starts from int64: 2**40 is exact in float32, although not in int32."""
    assert float(cast(np.array([2**40]), np.float32)[0]) == 2.0**40


def test_an_id_that_float32_cannot_hold_raises() -> None:
    """2**24 + 1 would round, and an int must not."""
    with pytest.raises(DataError, match="16777217"):
        cast(np.array([2**24 + 1]), np.float32)


def test_an_id_that_float64_cannot_hold_raises() -> None:
    """2**53 + 1 becomes 2**53 in float64, in which a comparison alone finds them equal."""
    with pytest.raises(DataError, match="9007199254740993"):
        cast(np.array([2**53 + 1]), np.float64)


def test_the_row_that_is_named_counts_from_the_start_of_the_batch() -> None:
    """A bad value in the second part of a batch is named by its row in the batch."""
    parts = [np.zeros(3), np.array([0.0, 1e300])]

    with pytest.raises(DataError, match=r"1e\+300 in row 4 cannot"):
        assemble(parts, np.dtype(np.float32), "x", SITE)


def test_a_complex_number_becomes_real_only_without_an_imaginary_part() -> None:
    """1+0j arrives as 1.0; 1+2j raises."""
    assert cast(np.array([1 + 0j]), np.float32)[0] == 1.0

    with pytest.raises(DataError, match=r"\(1\+2j\)"):
        cast(np.array([1 + 2j]), np.float32)


def test_complex_parts_stay_finite() -> None:
    """A part that complex64 cannot hold raises; NaN and infinity pass."""
    passed = cast(np.array([complex(np.nan, np.inf)]), np.complex64)[0]

    assert np.isnan(passed.real)
    assert passed.imag == np.inf
    with pytest.raises(DataError, match="complex64"):
        cast(np.array([complex(1, 1e300)]), np.complex64)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (np.array(["a"]), "text"),
        (np.array([b"a"]), "bytes"),
        (np.array(["a"], np.dtypes.StringDType()), "text"),
        (np.array([[1], [1, 2]], object), "unequal length"),
        (np.array(["2020-01-01"], "datetime64[D]"), "dates"),
        (np.array([1], "timedelta64[s]"), "durations"),
        (np.zeros(1, [("a", "i4")]), "JAX arrays cannot hold"),
    ],
)
def test_a_column_that_jax_cannot_hold_is_named_with_the_reason(values: Any, word: Any) -> None:
    """Text, objects, dates and records raise an error that names column and reason."""
    with pytest.raises(DataError, match=word) as caught:
        final_dtype(values.dtype, np.dtype(np.float32), False, "x", SITE)

    assert caught.value.column == "x"


def test_64_bit_dtypes_are_kept_with_x64_alone() -> None:
    """Without x64 each 64-bit dtype has its half as its final dtype."""
    wide = ["int64", "uint64", "float64", "complex128"]

    assert [canonical(np.dtype(name), True).name for name in wide] == wide
    halves = ["int32", "uint32", "float32", "complex64"]
    assert [canonical(np.dtype(name), False).name for name in wide] == halves


def test_foreign_byte_order_and_longdouble_become_what_jax_holds() -> None:
    """Big-endian data is turned round, and a longdouble becomes a float64."""
    turned = canonical(np.dtype(">i4"), True)

    assert turned.isnative
    assert cast(np.array([1, 2], ">i4"), turned).tolist() == [1, 2]
    assert canonical(np.dtype(np.longdouble), True) == np.float64


def test_x64_is_that_of_the_thread() -> None:
    """The setting read is the context's own, not the process's default."""
    owner: Any = jax if hasattr(jax, "enable_x64") else jax.experimental

    with owner.enable_x64(True):
        assert x64_enabled()
    with owner.enable_x64(False):
        assert not x64_enabled()


@pytest.mark.parametrize(
    "dtype",
    [d for d in [*INTS, *SMALL_INTS, *FLOATS, *FP8, *NARROW_FLOATS, BOOL] if hasattr(jnp, d.name)],
)
def test_every_dtype_of_jax_has_a_kind(dtype: Any) -> None:
    """Dtypes of numpy and ml_dtypes that JAX holds are known as bool, int or float."""
    assert kind_of(dtype) in ("bool", "int", "float")


@pytest.mark.parametrize("offset", [0, 16])
def test_what_comes_out_shares_no_memory_with_a_writable_array(offset: Any) -> None:
    """A writable array is copied, aligned or not: its owner may write to it again."""
    raw = np.zeros(1024 + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    source = raw[start : start + 1024].view(np.float32)

    result = cast(source, np.float32)

    assert not np.shares_memory(result, source)
    assert result.ctypes.data % 64 == 0


def test_an_immutable_array_of_the_final_dtype_is_not_copied() -> None:
    """A read-only array over bytes is handed on as it is."""
    source = np.frombuffer(bytes(1024), np.float32)

    assert cast(source, np.float32) is source


def test_parts_of_different_trailing_shapes_cannot_be_joined() -> None:
    """Rows of shape (3,) and (5,) in one batch raise, naming both."""
    with pytest.raises(DataError, match=r"\(3,\) and \(5,\)"):
        assemble([np.zeros((1, 3)), np.zeros((1, 5))], np.dtype(np.float32), "x", SITE)
