"""Tests of jaxiter.options."""

import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxiter.errors import OptionError
from jaxiter.options import make_options


def test_the_defaults_are_rays_but_for_synchronisation() -> None:
    """Ray's arguments have Ray's defaults, except that processes agree."""
    options = make_options()

    assert (options.prefetch_batches, options.batch_size) == (1, 256)
    assert (options.drop_last, options.dtypes, options.paddings) == (False, None, None)
    assert options.synchronize_batches


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("batch_size", 0),
        ("batch_size", -1),
        ("batch_size", 2.0),
        ("batch_size", True),
        ("batch_size", None),
        ("prefetch_batches", -1),
        ("prefetch_to_device", 0),
        ("drop_last", 1),
        ("synchronize_batches", "yes"),
        ("collate_fn", "name"),
        ("dtypes", "no such dtype"),
        ("dtypes", "datetime64[s]"),
        ("dtypes", object),
        ("dtypes", str),
        ("dtypes", {"x": "U3"}),
        ("dtypes", {}),
        ("dtypes", {None: "int32"}),
        ("paddings", "0"),
        ("paddings", {"x": None}),
        ("paddings", {"x": [0]}),
        ("paddings", {}),
        ("paddings", np.zeros(2)),
        ("local_shuffle_buffer_size", 0),
        ("local_shuffle_seed", 1.5),
        ("sharding", "data"),
        ("mask_column", ""),
        ("mask_column", 1),
        ("name", ""),
        ("sync_timeout_s", 0),
        ("sync_timeout_s", -1.0),
        ("sync_timeout_s", math.nan),
        ("sync_timeout_s", "1"),
        ("sync_timeout_s", True),
        ("on_peer_loss", "ignore"),
    ],
)
def test_a_bad_value_is_named(argument: Any, value: Any) -> None:
    """Each argument refuses what it cannot use; the error names argument, rule and value."""
    with pytest.raises(OptionError) as caught:
        make_options(**{argument: value})

    error = caught.value
    assert error.argument == argument
    assert str(error).startswith(argument)
    assert " must " in str(error) or " names " in str(error)
    assert "got " in str(error)


def test_numbers_of_numpy_are_numbers() -> None:
    """Sizes and paddings may come as numpy scalars."""
    four: Any = np.int64(4)
    options = make_options(batch_size=four, paddings={"x": np.float32(0.5), "y": np.array(True)})

    assert options.batch_size == 4
    assert options.paddings == {"x": 0.5, "y": True}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (jnp.bfloat16, "bfloat16"),
        ("bfloat16", "bfloat16"),
        (jnp.float8_e4m3fn, "float8_e4m3fn"),
        (np.float32, "float32"),
        (float, "float64"),
        (np.dtype(">i4"), "int32"),
        (bool, "bool"),
    ],
)
def test_dtypes_come_in_every_form_that_jax_takes(given: Any, name: Any) -> None:
    """A dtype may be a class, a name, a dtype, or one of ml_dtypes; native byte order is meant."""
    dtypes: Any = make_options(dtypes={"x": given, "y": None}).dtypes

    assert dtypes["x"].name == name
    assert dtypes["x"].isnative
    assert dtypes["y"] is None


def test_no_limit_is_infinity() -> None:
    """sync_timeout_s=None waits for ever."""
    assert make_options(sync_timeout_s=None).sync_timeout_s == math.inf


def test_drop_last_wins_over_paddings() -> None:
    """With both, nothing is padded."""
    assert make_options(paddings=0).pads
    assert not make_options(paddings=0, drop_last=True).pads
    assert not make_options().pads


def test_what_is_agreed_is_json_and_leaves_out_what_may_differ() -> None:
    """The agreed options survive JSON and do not depend on prefetch, seed or collate function."""
    one = make_options(
        batch_size=8, dtypes={"b": "int8", "a": None}, paddings={"b": math.nan, "a": 1j}
    ).agreed()
    other = make_options(
        batch_size=8,
        dtypes={"a": None, "b": np.int8},
        paddings={"a": 1j, "b": -math.nan},
        prefetch_batches=5,
        prefetch_to_device=7,
        collate_fn=dict,
        local_shuffle_buffer_size=3,
        local_shuffle_seed=4,
        sync_timeout_s=1,
    ).agreed()

    assert json.dumps(one) == json.dumps(other)
    assert json.loads(json.dumps(one)) == one


def test_equal_paddings_are_agreed_whatever_their_type() -> None:
    """0, 0.0 and False are one padding, and so are they in JSON."""
    texts = {json.dumps(make_options(paddings=value).agreed()) for value in (0, 0.0, False)}

    assert len(texts) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"batch_size": 16},
        {"drop_last": True},
        {"paddings": 1},
        {"paddings": {"x": 0}},
        {"paddings": 0.5},
        {"paddings": math.inf},
        {"dtypes": "int32"},
        {"dtypes": {"x": "int32"}},
        {"mask_column": "m"},
        {"synchronize_batches": False},
    ],
)
def test_a_difference_that_matters_is_seen(changed: Any) -> None:
    """Each option that must match shows in what is agreed."""
    before: dict[str, Any] = {"batch_size": 8, "paddings": 0}

    assert make_options(**before).agreed() != make_options(**(before | changed)).agreed()


def test_the_default_sharding_is_agreed_as_what_it_is() -> None:
    """Passing Ray's sharding is the same as passing none."""
    mesh = Mesh(np.array(jax.devices()), ("data",))
    partitions: Any = PartitionSpec
    explicit = NamedSharding(mesh, partitions("data"))

    assert make_options(sharding=explicit).agreed() == make_options().agreed()
    replicated = NamedSharding(mesh, partitions())
    assert make_options(sharding=replicated).agreed() != make_options().agreed()
