"""Tests of jaxiter.trees and jaxiter.schema."""

import json
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxiter.errors import DataError
from jaxiter.schema import Column, Schema, schema_of, unflatten
from jaxiter.site import Site
from jaxiter.trees import LEAF, Node, build, flatten, importable, with_key
from tests.jaxiter.sample_trees import Pair, Tokens, Unregistered

SITE = Site(process=1, batch=2)
DTYPES = ["int32", "bool", "float32", "bfloat16", "float8_e4m3fn", "complex64", "int4"]

arrays = st.builds(
    lambda dtype, shape: np.zeros((2, *shape), np.dtype(dtype)),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=2),
)
keys = st.text(alphabet="abcxyz_ .é", min_size=1, max_size=4)
batches = st.recursive(
    arrays,
    lambda inner: st.one_of(
        st.dictionaries(keys, inner, min_size=1, max_size=3),
        st.lists(inner, min_size=1, max_size=3),
        st.lists(inner, min_size=1, max_size=3).map(tuple),
        st.builds(Pair, inner, inner),
        st.builds(Tokens, inner, inner, st.sampled_from(["train", "test"])),
        st.builds(Pair, inner, st.none()),
    ),
    max_leaves=6,
)


def schema(batch: Any) -> Schema:
    """Return the schema of a batch."""
    tree, leaves = flatten(batch, SITE)
    return schema_of(tree, leaves, SITE)


def same(left: Any, right: Any) -> bool:
    """Say whether two batches have one structure and hold the very same arrays."""
    left_tree: Any
    left_leaves, left_tree = jax.tree_util.tree_flatten(left)
    right_leaves, right_tree = jax.tree_util.tree_flatten(right)
    return left_tree == right_tree and all(
        one is other for one, other in zip(left_leaves, right_leaves, strict=True)
    )


@given(batches)
def test_a_batch_is_built_again_from_its_parts(batch: Any) -> None:
    """Building from what flatten gave returns the same structure over the same arrays."""
    tree, leaves = flatten(batch, SITE)

    assert same(build(tree, leaves), batch)
    assert len(leaves) == tree.leaf_count() == len(list(tree.names()))


@given(batches)
def test_a_schema_survives_json(batch: Any) -> None:
    """A process that never had a row rebuilds schema and structure from JSON."""
    tree, leaves = flatten(batch, SITE)
    before = schema_of(tree, leaves, SITE)

    after = Schema.from_json(json.loads(json.dumps(before.to_json())))

    assert after == before
    assert hash(after) == hash(before)
    assert after.diff(before) == ""
    assert same(unflatten(after, leaves), batch)


@given(batches, batches)
def test_two_schemas_are_equal_or_differ_in_words(one: Any, other: Any) -> None:
    """diff is empty exactly for equal schemas."""
    left, right = schema(one), schema(other)

    assert (left == right) == (left.diff(right) == "")


def test_the_leaves_are_in_the_order_of_jax() -> None:
    """Leaves come in the order in which JAX flattens the same batch."""
    batch = {"b": np.zeros(1), "a": (np.ones(1), {"d": np.full(1, 2.0), "c": np.full(1, 3.0)})}

    _, leaves = flatten(batch, SITE)

    assert [leaf[0] for leaf in leaves] == [leaf[0] for leaf in jax.tree_util.tree_leaves(batch)]


def test_a_dict_keeps_the_order_of_its_columns() -> None:
    """Columns come out in the source's order, which does not count as a difference."""
    one = schema({"b": np.zeros(1), "a": np.zeros(1)})
    other = schema({"a": np.zeros(1), "b": np.zeros(1)})

    assert one == other
    assert list(unflatten(one, [0, 1])) == ["b", "a"]
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


def test_columns_are_named_by_their_path() -> None:
    """Names are keys, positions and fields joined by '/'; a bare array's is empty."""
    batch = {"x": Tokens(np.zeros(1), (np.zeros(1), np.zeros(1))), "y": Pair(np.zeros(1), None)}

    assert schema(batch).names == ("x/ids", "x/weights/0", "x/weights/1", "y/left")
    assert schema(np.zeros(1)).names == ("",)


def test_arrays_of_jax_count_as_arrays() -> None:
    """A jax.Array in a batch is read back to the host."""
    _, leaves = flatten({"x": jax.numpy.arange(3)}, SITE)

    assert leaves[0].tolist() == [0, 1, 2]


class Foreign:
    """An array of a library that has no numpy dtype for it."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        """Refuse."""
        raise RuntimeError("on a device")


@pytest.mark.parametrize(
    ("batch", "column", "words"),
    [
        ({"x": Foreign()}, "x", "cannot be read as a numpy array: on a device"),
        ({"x": [1, 2]}, "x/0", "no array"),
        ({"x": np.float32(1)}, "x", "no array"),
        ({"x": np.array(1)}, "x", "no rows"),
        ("rows", "", "no array"),
        ({"x": "rows"}, "x", "no array"),
        ({(1, 2): np.zeros(1)}, None, "names of columns"),
        ({True: np.zeros(1)}, None, "names of columns"),
        ({"x": Unregistered(np.zeros(1))}, "x", "register_dataclass"),
        ({"x": np.ma.masked_array([1, 2], [True, False])}, "x", "masked"),
        (Tokens(np.zeros(1), np.zeros(1), split=["a"]), "split", "holds no data"),
    ],
)
def test_what_is_no_batch_is_named(batch: Any, column: Any, words: Any) -> None:
    """Each part that is no array of rows raises an error that names it and says what to do."""
    with pytest.raises(DataError, match=words) as caught:
        flatten(batch, SITE)

    assert caught.value.column == column
    assert (caught.value.process, caught.value.batch) == (1, 2)


def test_two_columns_of_one_name_are_refused() -> None:
    """Options could not tell {'a': {'b': x}} from {'a/b': y}."""
    with pytest.raises(DataError, match="two columns have this name"):
        schema({"a": {"b": np.zeros(1)}, "a/b": np.zeros(1)})


def test_diff_names_every_column_and_both_sides() -> None:
    """All differences are told at once, in the words given for the sides."""
    one = schema({"a": np.zeros((1, 4, 3)), "b": np.zeros(1, np.int32), "c": np.zeros(1)})
    other = schema({"a": np.zeros((1, 4, 5)), "b": np.zeros(1, np.int32), "d": np.zeros(1)})

    text = one.diff(other, "in process 0", "in process 1")

    assert text == (
        "column 'a' is float64 (rows, 4, 3) in process 0, float64 (rows, 4, 5) in process 1; "
        "column 'c' is missing in process 1 (float64 (rows) in process 0); "
        "column 'd' is missing in process 0 (float64 (rows) in process 1)"
    )


def test_what_differs_most_is_named_first() -> None:
    """Columns missing on one side come before other dtypes, and those before other shapes."""
    one = schema({"a": np.zeros((1, 4)), "b": np.zeros(1), "c": np.zeros(1), "d": np.zeros(1)})
    other = schema({"a": np.zeros((1, 5)), "b": np.zeros(1, np.int32), "c": np.zeros(1)})

    assert one.differing_columns(other) == ("d", "b", "a")


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ((np.zeros(1),), [np.zeros(1)], "tuple(0: an array)"),
        (
            Tokens(np.zeros(1), np.zeros(1), "train"),
            Tokens(np.zeros(1), np.zeros(1), "test"),
            "split='test'",
        ),
        ({"x": np.zeros(1), "y": None}, {"x": np.zeros(1)}, "y: None"),
    ],
)
def test_diff_tells_structures_apart(one: Any, other: Any, words: Any) -> None:
    """Batches of the same columns in another structure differ, and the structure is shown."""
    assert words in schema(one).diff(schema(other))


def test_a_local_class_is_not_importable() -> None:
    """A class inside a function cannot be found by its name; one of a module can."""

    @jax.tree_util.register_dataclass
    @dataclass
    class Local:
        ids: Any

    (local,) = flatten(Local(np.zeros(1)), SITE)[0].classes()
    (module,) = flatten(Tokens(np.zeros(1), np.zeros(1)), SITE)[0].classes()

    assert not importable(local)
    assert importable(module)
    with pytest.raises(DataError, match="cannot be imported here"):
        build(Node.from_json(local.to_json()), [np.zeros(1)])
    assert isinstance(build(local, [np.zeros(1)]), Local)


@given(st.dictionaries(keys, batches, min_size=1, max_size=3))
def test_a_column_is_added_last_to_a_dict(batch: Any) -> None:
    """with_key keeps every other leaf in its place and puts the new one last for the reader."""
    tree, leaves = flatten(batch, SITE)
    extra = np.zeros(2)

    wider, all_leaves = with_key(tree, leaves, "mask", extra)

    built = build(wider, all_leaves)
    assert list(built) == [*batch, "mask"]
    assert built["mask"] is extra
    assert same({key: built[key] for key in batch}, batch)
    assert wider == flatten({**batch, "mask": extra}, SITE)[0]


def test_a_node_of_another_kind_is_another() -> None:
    """A leaf and an empty dict are not the same structure."""
    assert Node("dict") != LEAF
    assert replace(LEAF, cls=int) == LEAF


def test_a_column_reads_as_dtype_and_shape() -> None:
    """A column's words give its dtype and trailing shape."""
    assert str(Column("x", "bfloat16", (4, 3))) == "bfloat16 (rows, 4, 3)"
