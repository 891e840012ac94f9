"""Tests of jaxiter.rebatch."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxiter.errors import DataError
from jaxiter.rebatch import join, rebatch
from jaxiter.site import Site

SITE = Site(process=0, batch=0)
sizes = st.lists(st.integers(0, 7), max_size=8)


def columns(start: int, rows: int) -> dict[str, np.ndarray]:
    """Return rows `start` to `start + rows` of an endless table."""
    ids = np.arange(start, start + rows)
    return {"id": ids, "wide": np.stack([ids, -ids], axis=1)}


def emitted(sizes: list[int]) -> list[dict[str, np.ndarray]]:
    """Return batches of the given sizes, together rows 0, 1, 2, ..."""
    starts = np.cumsum([0, *sizes[:-1]]).tolist() if sizes else []
    return [columns(start, rows) for start, rows in zip(starts, sizes, strict=True)]


def joined(source: Any, batch_size: int) -> list[Any]:
    """Return the batches that come of a source."""
    return [join(pieces, SITE) for pieces in rebatch(source, batch_size, 0)]


def expected_sizes(rows: int, batch_size: int) -> list[int]:
    """Return the sizes of the batches that `rows` make."""
    full, rest = divmod(rows, batch_size)
    return [batch_size] * full + [rest] * (rest > 0)


@given(sizes, st.integers(1, 9))
def test_arrays_are_cut_to_size_in_order(sizes: Any, batch_size: Any) -> None:
    """Every row comes once, in order; each batch but the last is full, and none is empty."""
    batches = joined(emitted(sizes), batch_size)

    assert [len(batch["id"]) for batch in batches] == expected_sizes(sum(sizes), batch_size)
    ids = np.concatenate([np.zeros(0, int), *(batch["id"] for batch in batches)])
    assert ids.tolist() == list(range(sum(sizes)))
    for batch in batches:
        np.testing.assert_array_equal(batch["wide"], np.stack([batch["id"], -batch["id"]], axis=1))


@given(sizes, st.integers(1, 9))
def test_tables_are_cut_to_size_in_order(sizes: Any, batch_size: Any) -> None:
    """The same holds for Arrow tables, which stay tables."""
    source = (pa.table({"id": batch["id"]}) for batch in emitted(sizes))

    batches = joined(source, batch_size)

    assert [batch.num_rows for batch in batches] == expected_sizes(sum(sizes), batch_size)
    assert [x for batch in batches for x in batch["id"].to_pylist()] == list(range(sum(sizes)))


@given(sizes, st.integers(1, 9))
def test_frames_are_cut_to_size_in_order(sizes: Any, batch_size: Any) -> None:
    """The same holds for pandas frames, whose index starts at 0 in each."""
    source = (pd.DataFrame({"id": batch["id"]}) for batch in emitted(sizes))

    batches = joined(source, batch_size)

    assert [len(batch) for batch in batches] == expected_sizes(sum(sizes), batch_size)
    assert [x for batch in batches for x in batch["id"].tolist()] == list(range(sum(sizes)))
    assert all(batch.index.tolist() == list(range(len(batch))) for batch in batches)


def reusing(make: Any, sizes: list[int]) -> Any:
    """Emit rows in one buffer that is written over as soon as the next batch is asked for."""
    buffer = np.empty(max(sizes), np.int64)
    for batch in emitted(sizes):
        rows = len(batch["id"])
        buffer[:rows] = batch["id"]
        yield make(buffer[:rows])
        buffer[:] = -1


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: {"id": rows},
        lambda rows: pa.table({"id": rows}),
        lambda rows: pd.DataFrame({"id": rows}, copy=False),
    ],
    ids=["arrays", "table", "frame"],
)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(1, 9))
def test_rows_that_wait_survive_the_reuse_of_a_buffer(
    make: Any, sizes: Any, batch_size: Any
) -> None:
    """Rows kept for the next batch are the ones emitted, whatever the source does to its buffer."""
    rows = []
    for pieces in rebatch(reusing(make, sizes), batch_size, 0):
        rows += [int(x) for x in np.asarray(join(pieces, SITE)["id"])]

    assert rows == list(range(sum(sizes)))


def test_a_source_batch_of_the_right_size_is_not_copied() -> None:
    """Exactly one full piece is handed on as it came."""
    source = emitted([4, 4])

    assert joined(source, 4)[1]["id"] is source[1]["id"]


def test_immutable_rows_are_kept_without_a_copy() -> None:
    """Rows over bytes may wait where they are."""
    rows = np.frombuffer(bytes(24), np.int64)

    (pieces,) = rebatch(iter([{"id": rows}]), 4, 0)

    assert np.shares_memory(join(pieces, SITE)["id"], rows)


def test_a_source_is_not_asked_for_more_than_a_batch_needs() -> None:
    """The first batch is there as soon as its rows are."""

    def source() -> Any:
        yield columns(0, 4)
        raise AssertionError

    assert next(rebatch(source(), 2, 0))[0].rows == 2


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([{"a": np.zeros(2)}, {"b": np.zeros(2)}], "column 'a' is missing later"),
        ([{"a": np.zeros(2)}, {"a": np.zeros(2, int)}], "float64 .* and int64"),
        ([{"a": np.zeros((2, 3))}, {"a": np.zeros((2, 5))}], "column 'a'"),
        ([{"a": np.zeros(2)}, pa.table({"a": [0.0]})], "different formats"),
        ([pa.table({"a": [0]}), pa.table({"a": ["b"]})], "cannot be joined"),
        ([pa.table({"a": [0]}), pa.table({"a": [0], "b": [0]})], "column 'b'.* without"),
        ([pd.DataFrame({"a": [0]}), pd.DataFrame({"a": [0.5]})], "different columns or dtypes"),
        ([{"a": np.zeros(2), "b": np.zeros(3)}], "column 'b': it has 3 rows, but column 'a' has 2"),
        ([[1, 2]], "no array"),
        ([None, "text"], "no array"),
    ],
)
def test_what_cannot_be_joined_raises(source: Any, words: Any) -> None:
    """Rows of different columns, dtypes, shapes or formats are never forced into one batch."""
    with pytest.raises(DataError, match=words):
        joined(source, 8)


def test_batches_without_rows_or_columns_are_passed_over() -> None:
    """An empty batch, even of other columns, changes nothing."""
    source = [{}, {"x": np.zeros(0)}, {"a": np.ones(2)}, pa.table({"a": pa.array([], "int8")})]

    assert [batch["a"].tolist() for batch in joined(source, 4)] == [[1, 1]]
