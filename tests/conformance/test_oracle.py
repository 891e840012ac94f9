"""The oracle gives the answers that were worked out by hand, and keeps its own invariants."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.judge import expectations
from conformance.model import Case, Fault, Shard, Topology, Use
from conformance.oracle import Expectation, expect, expect_case
from tests.conformance.answers import DROP, FURTHER, MEASURED, PAD, REPORTED, Row, Size


def _sizes(expectation: Expectation) -> tuple[tuple[Size, ...], ...]:
    return tuple(
        tuple((len(p.rows), p.padding) if p.padding else len(p.rows) for p in parts)
        for parts in expectation.parts
    )


@pytest.mark.parametrize("row", [*MEASURED, *REPORTED, *FURTHER], ids=lambda r: r.name)
def test_answers_worked_out_by_hand(row: Row) -> None:
    """Sizes, padding and ending of every batch are those of the table."""
    found = row.answer()

    assert _sizes(found) == row.sizes
    assert found.endings == (row.ending,) * len(row.shards)
    assert found.exact == (row.ending == "stop") or not any(row.sizes)
    assert found.value_error == row.value_error
    assert found.ordered == ("local_shuffle_buffer_size" not in row.options)


def test_rows_are_named_in_order() -> None:
    """A part names its own rows of the shard, and padding has none."""
    found = expect([6, 3], {"batch_size": 4, **PAD}, 1)

    assert [p.rows for p in found.parts[0]] == [(0, 1, 2, 3), (4, 5)]
    assert [p.rows for p in found.parts[1]] == [(0, 1, 2), ()]


def test_alone_only_the_process_with_the_fault_ends_in_an_error() -> None:
    """Without synchronisation a fault, or a tail that does not divide, is one process's own."""
    off: dict[str, Any] = {"options": {"batch_size": 4}, "synchronize": False}
    tail = expect_case(Case("tail", (), (Shard((4, 1)), Shard((4, 2))), **off), 2)
    fault = Shard((4, 4, 4), fault=Fault("source", 1))
    failing = expect_case(Case("fault", (), (Shard((4, 4)), fault), **off), 2)

    assert tail.endings == ("error", "stop")
    assert _sizes(tail) == ((4,), (4, 2))
    assert tail.value_error
    assert failing.endings == ("stop", "error")
    assert _sizes(failing) == ((4, 4), (4,))
    assert not any((tail.exact, tail.together, failing.exact, failing.together))


def test_uneven_epochs_have_one_end() -> None:
    """Each of several epochs has the same answer (streaming#617)."""
    shards = (Shard((4, 4, 4)), Shard((4, 4)))
    case = Case("epochs", (), shards, options={"batch_size": 4, **DROP}, use=Use(epochs=2))
    found = expectations(case, Topology(2, 1))

    assert sorted(found) == [0, 1]
    assert found[0] == found[1]
    assert _sizes(found[0]) == ((4, 4), (4, 4))


def test_an_epoch_that_all_leave_is_followed_by_a_whole_one() -> None:
    """All leave after a batch, and read the next epoch to its end (ray#62949, grain#1196)."""
    shards = (Shard((4, 4, 4)),) * 2
    use = Use(epochs=2, leave={0: 1, 1: 1})
    case = Case("leave", (), shards, options={"batch_size": 4}, use=use)
    found = expectations(case, Topology(2, 1))

    assert (_sizes(found[0]), found[0].endings) == (((4,), (4,)), ("left", "left"))
    assert (_sizes(found[1]), found[1].endings) == (((4, 4, 4),) * 2, ("stop", "stop"))


def test_peers_of_a_lone_leaver_end_in_an_error() -> None:
    """One process leaves; the others get an error, after no more than all of their batches."""
    shards = (Shard((4, 4, 4)),) * 2
    case = Case("lone", (), shards, options={"batch_size": 4}, use=Use(leave={1: 1}))
    (found,) = expectations(case, Topology(2, 1)).values()

    assert found.endings == ("error", "left")
    assert _sizes(found) == ((4, 4, 4), (4,))
    assert not any((found.exact, found.together))


seeded = settings(
    deadline=None,
    print_blob=True,
    derandomize="CI" in os.environ,
    max_examples=200,
)
row_counts = st.lists(st.integers(0, 40), min_size=1, max_size=6)
batch_sizes = st.integers(1, 12)
devices = st.sampled_from([1, 2, 4])
modes = st.sampled_from([{}, PAD, DROP, PAD | DROP])
synchronized = st.booleans()


def _answer(rows: list[int], size: int, mode: Mapping[str, Any], sync: bool, n: int) -> Expectation:
    return expect(rows, {"batch_size": size * n, "synchronize_batches": sync, **mode}, n)


@seeded
@given(row_counts, batch_sizes, modes, synchronized, devices)
def test_rows_are_conserved(
    rows: list[int], size: int, mode: dict[str, Any], sync: bool, n: int
) -> None:
    """What is delivered is each shard from its start, in order; only a tail may be missing."""
    found = _answer(rows, size, mode, sync, n)
    for count, parts in zip(rows, found.parts, strict=True):
        delivered = [row for part in parts for row in part.rows]

        assert delivered == list(range(len(delivered)))
        assert len(delivered) <= count
        if found.exact and not mode.get("drop_last"):
            assert len(delivered) == count


@seeded
@given(row_counts, batch_sizes, modes, devices)
def test_counts_are_equal(rows: list[int], size: int, mode: dict[str, Any], n: int) -> None:
    """With synchronisation every process gets as many batches, and ends as, every other."""
    found = _answer(rows, size, mode, True, n)

    assert len({len(parts) for parts in found.parts}) == 1
    assert len(set(found.endings)) == 1
    assert found.together


@seeded
@given(row_counts, batch_sizes, modes, synchronized, devices)
def test_sizes_are_exact_until_the_last(
    rows: list[int], size: int, mode: dict[str, Any], sync: bool, n: int
) -> None:
    """Every part holds ``batch_size`` rows but the last, which devices can share in any case."""
    found = _answer(rows, size, mode, sync, n)
    for parts in found.parts:
        assert all(part.size == size * n for part in parts[:-1])
        assert all(0 < part.size <= size * n and part.size % n == 0 for part in parts)
        if mode:
            assert all(part.size == size * n for part in parts)


@seeded
@given(row_counts, batch_sizes, modes, devices)
def test_parts_of_a_batch_are_alike(
    rows: list[int], size: int, mode: dict[str, Any], n: int
) -> None:
    """With synchronisation every process's part of a batch has the same number of rows."""
    found = _answer(rows, size, mode, True, n)
    for parts in zip(*found.parts, strict=True):
        assert len({part.size for part in parts}) == 1


@seeded
@given(row_counts, batch_sizes, modes, synchronized, devices)
def test_padding_is_only_where_it_may_be(
    rows: list[int], size: int, mode: dict[str, Any], sync: bool, n: int
) -> None:
    """Padding needs ``paddings`` and no ``drop_last``, and comes when a process has no row left."""
    found = _answer(rows, size, mode, sync, n)
    for count, parts in zip(rows, found.parts, strict=True):
        for k, part in enumerate(parts):
            if part.padding:
                assert mode == PAD
                assert (k + 1) * size * n > count
            assert len(part.rows) == min(size * n, max(0, count - k * size * n))


@seeded
@given(row_counts, batch_sizes, modes, synchronized, devices)
def test_no_batch_is_without_a_real_row(
    rows: list[int], size: int, mode: dict[str, Any], sync: bool, n: int
) -> None:
    """Each batch holds a real row of some process; alone, of its own."""
    found = _answer(rows, size, mode, sync, n)
    if sync:
        assert all(any(part.rows for part in batch) for batch in zip(*found.parts, strict=True))
    else:
        assert all(part.rows for parts in found.parts for part in parts)


@seeded
@given(row_counts, batch_sizes, modes, synchronized, devices)
def test_errors_need_neither_mode(
    rows: list[int], size: int, mode: dict[str, Any], sync: bool, n: int
) -> None:
    """Without a fault, only shards with neither ``drop_last`` nor ``paddings`` end in an error."""
    found = _answer(rows, size, mode, sync, n)
    if "error" in found.endings:
        assert mode == {}
        assert found.value_error
        assert len(set(rows)) > 1 or rows[0] % n
    else:
        assert found.exact
        assert not found.value_error


@seeded
@given(st.data(), row_counts, batch_sizes, modes, synchronized, devices)
def test_emitted_sizes_do_not_matter(
    data: st.DataObject, rows: list[int], size: int, mode: dict[str, Any], sync: bool, n: int
) -> None:
    """However a source cuts its rows into pieces, the answer is that for the number of rows."""
    shards = tuple(Shard(_pieces(data, count)) for count in rows)
    options = {"batch_size": size * n, **mode}
    case = Case("pieces", (), shards, options=options, synchronize=sync)

    assert expect_case(case, n) == _answer(rows, size, mode, sync, n)


def _pieces(data: st.DataObject, rows: int) -> tuple[int, ...]:
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), max_size=5)))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, rows], strict=True))


@seeded
@given(row_counts, batch_sizes, modes, devices, st.integers(0, 5), st.integers(0, 5))
def test_a_failing_source_ends_all_alike(
    rows: list[int], size: int, mode: dict[str, Any], n: int, at: int, who: int
) -> None:
    """A source that fails never lets any process get past what it could still deliver."""
    process = who % len(rows)
    shards = [Shard((count,)) for count in rows]
    shards[process] = Shard((size * n,) * 5, fault=Fault("source", at))
    case = Case("fails", (), tuple(shards), options={"batch_size": size * n, **mode})
    found = expect_case(case, n)

    assert len(set(found.endings)) == 1
    assert "error" in found.endings[0]
    assert all(len(parts) <= at for parts in found.parts)
    if "stop" in found.endings[0]:
        assert mode.get("drop_last")
        others = [count // (size * n) for p, count in enumerate(rows) if p != process]
        assert min(others) <= at
