"""Tests of jaxiter.hostbatch."""

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxiter.buffers import aligned_empty
from jaxiter.errors import DataError
from jaxiter.hostbatch import HostBatch, Memory, host_batches
from jaxiter.options import make_options
from jaxiter.schema import unflatten
from tests.jaxiter.sample_trees import Tokens


def run(source: Any, *, x64: bool = False, **arguments: Any) -> list[HostBatch]:
    """Return the host batches of process 5."""
    return list(host_batches(iter(source), make_options(**arguments), 5, x64=x64))


def trees(batches: list[HostBatch]) -> list[Any]:
    """Return the batches as the user would see them."""
    return [unflatten(batch.schema, batch.leaves) for batch in batches]


@given(
    sizes=st.lists(st.integers(0, 7), max_size=8),
    batch_size=st.integers(1, 9),
    dtypes=st.sampled_from([None, "int16", "float32", {"id": "int8", "wide": "bfloat16"}]),
    collate=st.sampled_from([None, dict]),
    mask=st.sampled_from([None, "mask"]),
    x64=st.booleans(),
)
def test_rows_are_conserved_in_order_and_size(
    *, sizes: Any, batch_size: Any, dtypes: Any, collate: Any, mask: Any, x64: Any
) -> None:
    """For any emitted sizes and options each row comes once, in order, in full batches but one."""
    source: list[Any] = []
    for size in sizes:
        start = sum(len(batch["id"]) for batch in source)
        ids = np.arange(start, start + size)
        source.append({"id": ids, "wide": np.stack([ids * 2.0, -ids], axis=1)})

    batches = run(
        source,
        x64=x64,
        batch_size=batch_size,
        dtypes=dtypes,
        collate_fn=collate,
        mask_column=mask,
    )

    full, rest = divmod(sum(sizes), batch_size)
    assert [batch.rows for batch in batches] == [batch_size] * full + [rest] * bool(rest)
    assert [int(x) for tree in trees(batches) for x in tree["id"]] == list(range(sum(sizes)))
    own = {"id": "int64", "wide": "float64"} if x64 else {"id": "int32", "wide": "float32"}
    expected = dict.fromkeys(own, dtypes) if isinstance(dtypes, str) else dtypes or own
    for batch, tree in zip(batches, trees(batches), strict=True):
        assert tree["wide"].astype(float).tolist() == [[2 * i, -i] for i in tree["id"].tolist()]
        assert all(leaf.flags.c_contiguous for leaf in batch.leaves)
        assert {name: tree[name].dtype.name for name in own} == expected
        if mask is not None:
            assert tree.pop(mask).tolist() == [True] * batch.rows
        assert list(tree) == ["id", "wide"]


def test_a_bare_array_stays_bare() -> None:
    """One array a batch comes out as one array; a mapping of one dtype serves it."""
    (batch,) = run([np.arange(3), np.arange(3)], batch_size=6, dtypes={"data": "float32"})

    result = unflatten(batch.schema, batch.leaves)
    assert result.dtype == np.float32
    assert result.tolist() == [0, 1, 2, 0, 1, 2]


def test_collate_may_return_a_tree() -> None:
    """Nested dicts, tuples and dataclasses come out as collate_fn made them."""

    def collate(batch: Any) -> Any:
        return {"t": Tokens(batch["x"], batch["x"] + 1, "test"), "p": (batch["x"], None)}

    first, last = trees(run([{"x": np.arange(5)}], batch_size=3, collate_fn=collate))

    assert first["t"].weights.tolist() == [1, 2, 3]
    assert first["t"].split == "test"
    assert first["p"][0].tolist() == [0, 1, 2]
    assert first["p"][1] is None
    assert last["t"].ids.tolist() == [3, 4]


def test_collate_sees_batches_of_the_final_size_in_the_sources_format() -> None:
    """Rebatching comes before collate_fn, which gets Arrow tables if the source emits them."""
    seen = []

    def collate(table: Any) -> Any:
        seen.append((type(table), table.num_rows))
        return {"x": table["x"].to_numpy()}

    source = [pa.table({"x": [i, i]}) for i in range(5)]
    batches = run(source, batch_size=4, collate_fn=collate)

    assert seen == [(pa.Table, 4), (pa.Table, 4), (pa.Table, 2)]
    assert [x for tree in trees(batches) for x in tree["x"].tolist()] == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
    ]


def error_of(source: Any, **arguments: Any) -> DataError:
    """Return the DataError that reading a source raises."""
    with pytest.raises(DataError) as caught:
        run(source, **({"batch_size": 2} | arguments))
    return caught.value


@pytest.mark.parametrize(
    ("second", "arguments", "column", "words"),
    [
        ({"x": np.array(["a", "b"])}, {}, "x", "text"),
        ({"x": np.array([[1], [1, 2]], object)}, {}, "x", "unequal length"),
        ({"x": np.zeros(2, "M8[s]")}, {}, "x", "dates"),
        ({"x": np.zeros(2), "y": np.zeros(3)}, {}, "y", "3 rows"),
        ({"x": np.full(2, 2**31)}, {}, "x", "2147483648 in row 0 (and 1 more)"),
        ({"x": np.full(2, 2**40, np.uint64)}, {}, "x", "1099511627776"),
        ({"x": np.full(2, 1e39)}, {}, "x", "1e+39"),
        ({"x": np.zeros(2, np.float32)}, {}, "x", "may not change between batches"),
        ({"x": np.zeros(2, int), "y": np.zeros(2)}, {}, "y", "missing in the batch before"),
        ({"y": np.zeros(2, int)}, {}, "x", "missing in this one"),
        ({"x": np.zeros(2, int), "z": None}, {}, None, "the structure is"),
        ({"x": np.array([0.0, np.nan])}, {"dtypes": "int32"}, "x", "nan in row 1"),
        ({"x": np.array([0, 300])}, {"dtypes": {"x": "uint8"}}, "x", "300"),
        ({"y": np.zeros(2)}, {"dtypes": {"x": "uint8"}}, "x", "`dtypes` names this column"),
        (pa.table({"x": [0, 0]}), {}, None, "tables"),
        ({"x": np.zeros(2, int), 1.5: np.zeros(2)}, {}, None, "1.5"),
    ],
)
def test_bad_data_names_column_process_and_batch(
    second: Any, arguments: Any, column: Any, words: Any
) -> None:
    """What is wrong in batch 1 of process 5 is said to be there, in this column."""
    error = error_of([{"x": np.zeros(2, int)}, second], **arguments)

    assert (error.column, error.process, error.batch) == (column, 5, 1)
    assert "process 5, batch 1" in str(error)
    assert words in str(error)


def test_the_column_at_fault_is_named_beside_what_may_differ() -> None:
    """Neither another dtype of the source within a batch nor another trailing shape is named."""
    piece = {"a": np.zeros(1, np.float32), "b": np.zeros(1, np.int32)}
    within = error_of([piece, {"a": np.zeros(1)}])
    first = {"a": np.zeros((2, 3)), "b": np.zeros(2, np.int32)}
    between = error_of([first, {"a": np.zeros((2, 4)), "b": np.zeros(2, np.int16)}])

    assert (within.column, between.column) == ("b", "b")


@pytest.mark.parametrize(
    ("arguments", "column", "words"),
    [
        ({"dtypes": {"x": "int8"}}, "y", "`dtypes` does not name this column"),
        ({"dtypes": {"x": "int8", "y": "int8", "z": "int8"}}, "z", "only 'x', 'y'"),
        ({"paddings": {"x": 0}}, "y", "`paddings` does not name this column"),
        ({"paddings": {"x": 0, "y": 0, "z": 0}}, "z", "only 'x', 'y'"),
        ({"paddings": -1, "dtypes": "uint8"}, "x", "the padding -1"),
        ({"paddings": {"x": 0, "y": 0.5}, "dtypes": "int8"}, "y", "the padding 0.5"),
        ({"mask_column": "x"}, "x", "Choose another name"),
        ({"collate_fn": lambda b: b["x"], "mask_column": "m"}, "m", "a batch is one array"),
        ({"collate_fn": lambda b: {"x": b["x"][:1]}}, "x", "1 rows for 2"),
        ({"collate_fn": lambda _: {}}, None, "no columns"),
        ({"collate_fn": lambda _: 3}, "", "no array"),
        ({"collate_fn": lambda _: {"x": np.float32(3)}}, "x", "no array"),
    ],
)
def test_options_that_do_not_fit_the_columns_raise_at_the_first_batch(
    arguments: Any, column: Any, words: Any
) -> None:
    """A name in dtypes or paddings, a padding, a mask or a collate function that does not fit."""
    error = error_of([{"x": np.zeros(2), "y": np.zeros(2)}], **arguments)

    assert (error.column, error.process, error.batch) == (column, 5, 0)
    assert words in str(error)


def test_a_mapping_may_leave_a_column_its_own_dtype() -> None:
    """None in dtypes keeps what the source has."""
    (tree,) = trees(
        run([{"x": np.zeros(2, np.int8), "y": np.zeros(2)}], dtypes={"x": None, "y": "float16"})
    )

    assert (tree["x"].dtype, tree["y"].dtype) == (np.int8, np.float16)


def test_trailing_shapes_may_change_between_batches() -> None:
    """Batches padded to their own longest row pass; processes compare them batch by batch."""
    batches = run([np.zeros((2, 3), np.int8), np.zeros((2, 5), np.int8)], batch_size=2)

    assert [batch.schema.columns[0].shape for batch in batches] == [(3,), (5,)]


def test_dtypes_let_rows_of_different_dtypes_meet() -> None:
    """With a dtype asked for, int and float rows join in it; without one they raise."""
    source = [{"x": np.array([1])}, {"x": np.array([0.5])}]

    (tree,) = trees(run(source, dtypes="float32"))
    error = error_of(source)

    assert tree["x"].tolist() == [1, 0.5]
    assert "rows of dtype float32 and int32 meet" in str(error)


def test_unequal_schemas_are_the_same_object_when_equal() -> None:
    """A schema is compared by identity in the common case."""
    first, second = run([{"x": np.zeros(4)}], batch_size=2)

    assert first.schema is second.schema


def test_errors_of_source_and_collate_function_pass_as_they_are() -> None:
    """Whoever wires the stages chains the original exception."""

    def failing() -> Any:
        yield {"x": np.zeros(2)}
        raise KeyError("from the source")

    with pytest.raises(KeyError, match="from the source"):
        run(failing(), batch_size=2)
    with pytest.raises(ZeroDivisionError):
        run([{"x": np.zeros(2)}], collate_fn=lambda _: 1 / 0)


def test_closing_closes_the_source() -> None:
    """A source that is a generator runs its own clean-up when the batches are closed."""
    closed = []

    def source() -> Any:
        try:
            while True:
                yield {"x": np.zeros(2)}
        finally:
            closed.append(True)

    batches = host_batches(source(), make_options(batch_size=2), 0)
    next(batches)
    batches.close()  # type: ignore[attr-defined]

    assert closed == [True]


@pytest.mark.parametrize("offset", [0, 16])
@pytest.mark.parametrize("rows", [4, 3, 7])
@pytest.mark.parametrize("collate", [None, dict])
@pytest.mark.parametrize("words", [16, 100_000])
def test_a_source_may_reuse_its_buffer(offset: Any, rows: Any, collate: Any, words: Any) -> None:
    """What was delivered never changes, whatever size and alignment the source's buffer has."""
    nbytes = rows * words * 4
    raw = np.empty(nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    buffer = raw[start : start + nbytes].view(np.float32).reshape(rows, words)

    def source() -> Any:
        for step in range(5):
            buffer[:] = np.arange(step * rows, (step + 1) * rows)[:, None]
            yield {"x": buffer}
            buffer[:] = -1

    options = make_options(batch_size=4, collate_fn=collate)
    device = jax.local_devices()[0]
    placed = [
        jax.device_put(batch.leaves[0], device) for batch in host_batches(source(), options, 0)
    ]

    delivered = np.concatenate([np.asarray(array) for array in placed])
    assert delivered[:, 0].tolist() == list(range(5 * rows))
    assert (delivered == delivered[:, :1]).all()


def test_an_immutable_batch_of_the_right_size_is_not_copied() -> None:
    """A full batch over memory that cannot change goes to the device as it is."""
    source = [{"x": np.frombuffer(bytes(64), np.float32)}]

    (batch,) = run(source, batch_size=16)

    assert batch.leaves[0] is source[0]["x"]


def test_the_result_of_collate_is_copied_when_it_may_change() -> None:
    """A collate function that fills one array again and again cannot change what was delivered."""
    scratch = np.zeros(2, np.float32)

    def collate(batch: Any) -> Any:
        scratch[:] = batch["x"]
        return {"x": scratch}

    delivered = trees(run([{"x": np.arange(6)}], batch_size=2, collate_fn=collate))

    assert [tree["x"].tolist() for tree in delivered] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("x64", [False, True])
def test_64_bit_values_arrive_with_x64(x64: Any) -> None:
    """With x64 an int64 stays one; x64 is that of the thread unless it is given."""
    owner: Any = jax if hasattr(jax, "enable_x64") else jax.experimental

    with owner.enable_x64(x64):
        batches = host_batches(iter([{"x": np.array([1])}]), make_options(), 0)
    (batch,) = batches

    assert batch.leaves[0].dtype == (np.int64 if x64 else np.int32)


PACKED = Memory(aligned_empty, packs=True)


@pytest.mark.parametrize("source", [np.float32, np.int64, np.float64, ">i2", ml_dtypes.bfloat16])
@pytest.mark.parametrize("sizes", [[6, 6], [4, 5, 3]], ids=["whole", "pieces"])
@pytest.mark.parametrize("dtypes", [None, np.float32])
def test_columns_in_a_block_are_those_that_are_not(source: Any, sizes: Any, dtypes: Any) -> None:
    """Many scalar columns lie in one block, cast or not, with the values of columns alone."""
    pieces = [
        {f"c{i:02}": (np.arange(size) + 10 * k - i).astype(source) for i in range(20)}
        for k, size in enumerate(sizes)
    ]
    options = make_options(batch_size=6, dtypes=dtypes)
    packed = list(host_batches(iter(pieces), options, 0, x64=False, memory=PACKED))
    alone = list(host_batches(iter(pieces), options, 0, x64=False))

    assert len(packed) == len(alone) == 2
    for one, other in zip(packed, alone, strict=True):
        (block,) = one.blocks.values()
        assert one.schema == other.schema
        for row, leaf, expected in zip(block, one.leaves, other.leaves, strict=True):
            assert leaf.base is not None
            assert np.shares_memory(row, leaf)
            assert leaf.dtype == expected.dtype
            assert leaf.tolist() == expected.tolist()


def test_columns_that_come_in_several_dtypes_keep_their_values_in_a_wide_table() -> None:
    """Numpy would join int64 and float32 as float64, and lose digits: they are not joined."""
    pieces = [{f"c{i:02}": np.array([i], np.int64 if i % 2 else np.int8) for i in range(20)}] * 2
    pieces[1] = {name: column.astype(np.float32) for name, column in pieces[1].items()}
    options = make_options(batch_size=2, dtypes=np.float32)
    (batch,) = host_batches(iter(pieces), options, 0, x64=False, memory=PACKED)

    assert [leaf.tolist() for leaf in batch.leaves] == [[i, i] for i in range(20)]
    assert batch.blocks == {}


@pytest.mark.parametrize("bad", [0, 7, 19])
def test_a_value_that_cannot_be_held_is_found_in_a_block(bad: int) -> None:
    """The error names the column and the row, as it does for columns alone."""
    table = {f"c{i:02}": np.arange(6) for i in range(20)}
    table[f"c{bad:02}"] = np.array([0, 1, 2, 3, 2**40, 5])
    options = make_options(batch_size=6)
    with pytest.raises(DataError, match=rf"'c{bad:02}'.* {2**40} in row 4 cannot be held by int32"):
        list(host_batches(iter([table]), options, 3, x64=False, memory=PACKED))


def test_an_array_of_more_dimensions_in_a_later_piece_is_named() -> None:
    """A column of numbers does not meet one of vectors, though each is many."""
    pieces = [{f"c{i:02}": np.zeros(1) for i in range(20)}] * 2
    pieces[1] = {**pieces[1], "c03": np.zeros((1, 1))}
    options = make_options(batch_size=2)
    with pytest.raises(DataError, match=r"'c03'.*trailing shapes"):
        list(host_batches(iter(pieces), options, 3, x64=False, memory=PACKED))
