"""Tests of jaxiter.placement within one process of eight devices."""

import itertools
import json
import math
import threading
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from jaxiter.errors import DataError, OptionError
from jaxiter.options import make_options
from jaxiter.placement import (
    Placement,
    default_sharding,
    describe_sharding,
    held_rows,
    row_shard,
    rows_checksum,
    split_rows,
)
from jaxiter.schema import schema_of
from jaxiter.site import Site
from jaxiter.trees import flatten

SITE = Site(process=1, batch=2)
DEVICES = 8


def named(shape: tuple[int, ...], *spec: Any, order: Any = range(DEVICES)) -> NamedSharding:
    """Return a sharding over a mesh of `shape` with the axes a, b, c and devices in `order`."""
    devices = np.array([jax.devices()[i] for i in order]).reshape(shape)
    partitions: Any = PartitionSpec
    return NamedSharding(Mesh(devices, tuple("abc"[: len(shape)])), partitions(*spec))


@st.composite
def shardings(draw: st.DrawFn) -> tuple[NamedSharding, list[int], list[tuple[str, ...]]]:
    """Draw a sharding over all devices, their order in its mesh, and the axes of each dimension."""
    shape = draw(st.sampled_from([(8,), (2, 4), (4, 2), (8, 1), (2, 2, 2), (1, 8)]))
    order = draw(st.permutations(range(DEVICES)))
    axes = draw(st.permutations(list("abc"[: len(shape)])))
    first, rest = sorted(draw(st.tuples(*[st.integers(0, len(axes))] * 2)))
    dimensions = [tuple(axes[:first]), tuple(axes[first:rest])]
    return named(shape, *(axes or None for axes in dimensions), order=order), order, dimensions


@given(shardings(), st.sampled_from([1, 2, 4, 8]), st.permutations(range(DEVICES)))
def test_processes_with_the_same_rows_form_groups_and_no_others_do(
    drawn: Any, processes: Any, dealt: Any
) -> None:
    """On any mesh the groups are those that its layout gives, or the sharding is refused."""
    sharding, order, (row_axes, _) = drawn
    process_of = {device: i * processes // DEVICES for i, device in enumerate(dealt)}
    shape = sharding.mesh.devices.shape
    places = dict(zip(order, itertools.product(*map(range, shape)), strict=True))
    sizes = [shape["abc".index(axis)] for axis in row_axes]
    rows_of: dict[int, set[int]] = {process: set() for process in range(processes)}
    for device, place in places.items():
        shard = 0
        for axis, size in zip(row_axes, sizes, strict=True):
            shard = shard * size + place["abc".index(axis)]
        rows_of[process_of[device]].add(shard)
    fits = len({len(rows) for rows in rows_of.values()}) == 1 and all(
        one == other or not one & other for one in rows_of.values() for other in rows_of.values()
    )

    held, rows = held_rows(sharding, lambda device: process_of[device.id])
    if not fits:
        with pytest.raises(ValueError, match="process"):
            split_rows(held, rows)
        return
    split = split_rows(held, rows)
    assert split.count * split.shards == math.prod(sizes)
    assert sorted(p for group in split.groups for p in group) == list(range(processes))
    for one, other in itertools.product(range(processes), repeat=2):
        assert (split.index(one) == split.index(other)) == (rows_of[one] == rows_of[other])
    firsts = [min(rows_of[group[0]]) for group in split.groups]
    assert firsts == sorted(firsts)


@settings(max_examples=40)
@given(shardings(), st.sampled_from([(), (8,), (8, 3)]), st.integers(1, 3))
def test_arrays_hold_the_rows_they_were_given(drawn: Any, trailing: Any, height: Any) -> None:
    """On any mesh the global array is the rows of the process, in the sharding asked for."""
    sharding, _, (_, column_axes) = drawn
    if column_axes and not trailing:
        trailing = (8,)
    rows = 8 * height
    leaf = np.arange(rows * math.prod(trailing), dtype=np.float32).reshape(rows, *trailing)
    placement = Placement(make_options(batch_size=rows, sharding=sharding), x64=False)

    (array,) = placement.put([leaf])

    assert array.sharding.is_equivalent_to(sharding, array.ndim)
    np.testing.assert_array_equal(np.asarray(array), leaf)
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), leaf[shard.index])


def test_the_default_is_rays_sharding() -> None:
    """All devices along one axis 'data'; one process reads all rows."""
    placement = Placement(make_options(batch_size=8))

    assert placement.sharding.is_equivalent_to(named((8,), "a"), 1)
    assert default_sharding().mesh.axis_names == ("data",)
    assert placement.row_shard == row_shard() == (0, 1)
    assert placement.row_groups == ((0,),)


def test_batch_size_must_divide_by_the_row_shards_not_by_the_devices() -> None:
    """Over (2, 4) with rows along the first axis a batch of 2 will do; one of 3 will not."""
    sharding = named((2, 4), "a")

    assert Placement(make_options(batch_size=2, sharding=sharding)).split.shards == 2
    with pytest.raises(OptionError, match="multiple of the 2 row shards") as caught:
        Placement(make_options(batch_size=3, sharding=sharding))
    assert (caught.value.argument, caught.value.value) == ("batch_size", 3)


def test_a_replicated_batch_may_have_any_size() -> None:
    """Without a split of rows every device holds all of them."""
    placement = Placement(make_options(batch_size=3, sharding=named((8,))))

    (array,) = placement.put([np.arange(3, dtype=np.int32)])

    assert [shard.data.tolist() for shard in array.addressable_shards] == [[0, 1, 2]] * 8


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({0: {(0, 6)}, 1: set()}, "process 1 has no device"),
        ({0: {(0, 2), (2, 4)}, 1: {(2, 4), (4, 6)}}, "processes 0 and 1 hold some of the same"),
        ({0: {(0, 2)}, 1: {(2, 4), (4, 6)}}, "process 0 holds 1 row shards, process 1 holds 2"),
        ({0: {(0, 2)}, 1: {(2, 6)}}, "unequal size"),
    ],
)
def test_rows_that_no_split_can_serve_are_refused(held: Any, words: Any) -> None:
    """Processes must hold the same rows or disjoint ones, and all as many."""
    with pytest.raises(ValueError, match=words):
        split_rows(held, 6)


def test_a_sharding_of_fewer_devices_leaves_one_process_alone() -> None:
    """A mesh over some devices of the only process is fine."""
    sharding = SingleDeviceSharding(jax.devices()[3])
    placement = Placement(make_options(batch_size=5, sharding=sharding))

    (array,) = placement.put([np.arange(5, dtype=np.int32)])

    assert array.devices() == {jax.devices()[3]}
    assert array.tolist() == [0, 1, 2, 3, 4]


def check(placement: Placement, rows: int, **columns: np.ndarray) -> None:
    """Check a batch of the given columns."""
    tree, leaves = flatten(columns, SITE)
    placement.check(schema_of(tree, leaves, SITE), rows, SITE)


def test_a_column_without_the_dimensions_of_the_sharding_is_named() -> None:
    """A spec with more entries than a column has dimensions is an error of that column."""
    placement = Placement(make_options(batch_size=4, sharding=named((2, 4), "a", "b")))
    check(placement, 4, x=np.zeros((1, 8)))

    with pytest.raises(
        DataError, match=r"column 'y'.*\(4,\) cannot .* for 2 dimensions or more"
    ) as caught:
        check(placement, 4, x=np.zeros((1, 8)), y=np.zeros(1))
    assert (caught.value.column, caught.value.process, caught.value.batch) == ("y", 1, 2)
    with pytest.raises(DataError, match=r"column 'x'.*axis 1 is partitioned 4 times"):
        check(placement, 4, x=np.zeros((1, 6)))


def test_a_short_batch_must_divide_by_the_row_shards() -> None:
    """A tail of one row on several devices raises, and says what to do."""
    placement = Placement(make_options(batch_size=8))
    check(placement, 8, x=np.zeros(1))

    with pytest.raises(DataError, match=r"process 1, batch 2: its 1 rows .*drop_last.*paddings"):
        check(placement, 1, x=np.zeros(1))


@pytest.mark.parametrize(
    "dtype", ["bool", "int4", "uint8", "int64", "float64", "bfloat16", "float8_e4m3fn", "complex64"]
)
def test_every_dtype_arrives_as_it_is(dtype: Any) -> None:
    """The array has the dtype and values of the host array, 64-bit ones with x64."""
    leaf = (np.arange(8) % 2).astype(np.dtype(dtype))
    placement = Placement(make_options(batch_size=8), x64=True)

    (array,) = placement.put([leaf])

    assert array.dtype == np.dtype(dtype)
    assert np.asarray(array).astype(complex).tolist() == [0, 1] * 4


def test_x64_is_taken_when_the_placement_is_made() -> None:
    """A put from another thread, which has its own settings, keeps 64 bits."""
    owner: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    with owner.enable_x64(True):
        placement = Placement(make_options(batch_size=8))
    arrays: list[jax.Array] = []

    thread = threading.Thread(target=lambda: arrays.extend(placement.put([np.arange(8) + 2**40])))
    thread.start()
    thread.join(60)

    assert arrays[0].dtype == np.int64
    assert arrays[0].tolist() == [i + 2**40 for i in range(8)]


def test_a_mesh_in_use_changes_nothing() -> None:
    """Inside a context of another mesh arrays get the sharding of the placement."""
    placement = Placement(make_options(batch_size=8))

    other: Any = named((2, 4)).mesh
    with jax.set_mesh(other):
        (array,) = placement.put([np.arange(8, dtype=np.int32)])

    assert array.sharding.is_equivalent_to(placement.sharding, 1)
    assert array.tolist() == list(range(8))


def test_descriptions_are_equal_exactly_for_equal_shardings() -> None:
    """Axes, their sizes and kinds, the order of devices and the spec all count."""
    different = [
        None,
        named((8,), "a"),
        named((8,)),
        named((8,), "a", order=reversed(range(DEVICES))),
        named((2, 4), "a"),
        named((4, 2), "a"),
        named((2, 4), "b"),
        named((2, 4), ("a", "b")),
        named((2, 4), ("b", "a")),
        named((2, 4), "a", "b"),
        named((2, 4), None, "a"),
        SingleDeviceSharding(jax.devices()[0]),
        SingleDeviceSharding(jax.devices()[1]),
    ]

    texts = [json.dumps(describe_sharding(sharding)) for sharding in different]
    assert len(set(texts)) == len(texts)
    assert describe_sharding(named((2, 4), ("a",), None)) == describe_sharding(named((2, 4), "a"))


def test_the_checksum_tells_rows_apart() -> None:
    """Values, their order, dtype and shape count; equal rows give equal digests."""
    rows = np.arange(6, dtype=np.int32)
    others: list[list[np.ndarray]] = [
        [rows[::-1].copy()],
        [rows.astype(np.float32)],
        [rows.reshape(2, 3)],
        [rows, rows],
        [rows[:5]],
        [rows.view(np.dtype("bfloat16"))],
        [np.zeros((6, 0), np.int32)],
    ]

    digests = {rows_checksum(leaves) for leaves in others}
    assert rows_checksum([rows.copy()]) == rows_checksum([rows])
    assert len(digests) == len(others)
    assert rows_checksum([rows]) not in digests
