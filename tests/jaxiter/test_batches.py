"""The iterable that a user holds, in one process."""

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxiter
from tests.jaxiter.jobs import threads_left

ROOT = Path(__file__).parents[2]
DEVICES = 8


def rows(*sizes: int) -> list[dict[str, np.ndarray]]:
    starts = np.cumsum([0, *sizes])
    return [{"x": np.arange(a, b, dtype=np.int32)} for a, b in pairwise(starts)]


def flat(batches: Any) -> list[list[int]]:
    return [np.asarray(batch["x"]).tolist() for batch in batches]


def test_each_iter_is_a_new_epoch() -> None:
    """An iterable gives the same batches in each epoch, and its books one entry an epoch."""
    batches = jaxiter.iter_jax_batches(rows(5, 12), batch_size=8, paddings=-1)

    assert flat(batches) == flat(batches) == [list(range(8)), list(range(8, 16)), [16] + [-1] * 7]
    assert [(s.epoch, s.state, s.rows_delivered) for s in batches.stats()] == [
        (0, "ended", 17),
        (1, "ended", 17),
    ]


def test_a_new_epoch_ends_the_one_before() -> None:
    """iter() closes the epoch that runs: its iterator raises ClosedError from then on."""
    batches = jaxiter.iter_jax_batches(rows(80), batch_size=8)
    first = iter(batches)
    next(first)
    second = iter(batches)

    with pytest.raises(jaxiter.ClosedError, match="a new epoch has begun"):
        next(first)
    assert len(list(second)) == 10


def test_the_end_and_errors_repeat() -> None:
    """next() after the end raises StopIteration again; after an error, the same error."""
    ended = iter(jaxiter.iter_jax_batches(rows(8), batch_size=8))
    list(ended)
    failed = iter(jaxiter.iter_jax_batches([{"x": np.array(["a"] * 8)}], batch_size=8))

    for _ in range(3):
        with pytest.raises(StopIteration):
            next(ended)
        with pytest.raises(jaxiter.DataError, match="'x'") as caught:
            next(failed)
    assert caught.value.column == "x"


def test_a_with_block_closes() -> None:
    """Leaving a with block ends the threads, wherever the loop was."""
    with jaxiter.iter_jax_batches(rows(800), batch_size=8) as batches:
        next(iter(batches))

    assert threads_left() == []
    assert batches.stats()[0].state == "closed"


def test_an_abandoned_iterator_is_closed() -> None:
    """An iterator that nobody refers to any more is closed, its source too."""
    closed = threading.Event()

    def source() -> Iterator[dict[str, np.ndarray]]:
        try:
            while True:
                yield rows(8)[0]
        finally:
            closed.set()

    for batch in jaxiter.iter_jax_batches(source, batch_size=8):
        batch["x"].block_until_ready()
        break
    gc.collect()

    assert threads_left() == []
    assert closed.wait(5.0)


def test_closing_from_another_thread_frees_a_waiting_consumer() -> None:
    """close() in one thread ends a next() that waits in another."""
    asked = threading.Event()
    never = threading.Event()

    def source() -> Iterator[dict[str, np.ndarray]]:
        asked.set()
        never.wait(30.0)
        yield rows(8)[0]

    iterator = iter(jaxiter.iter_jax_batches(source, batch_size=8))
    raised: list[Exception] = []

    def consume() -> None:
        try:
            next(iterator)
        except jaxiter.JaxIterError as error:
            raised.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert asked.wait(10.0)
    iterator.close()
    consumer.join(10.0)
    never.set()

    assert [type(error) for error in raised] == [jaxiter.ClosedError]


def test_memory_holds_what_the_arguments_promise() -> None:
    """The source is read no further ahead than prefetching on host and device allows."""
    given = 0

    def source() -> Iterator[dict[str, np.ndarray]]:
        nonlocal given
        for _ in range(1000):
            given += 1
            yield {"x": np.zeros((8, 1 << 18), np.float32)}  # 8 MiB

    iterator = iter(
        jaxiter.iter_jax_batches(source, batch_size=8, prefetch_batches=2, prefetch_to_device=2)
    )
    furthest = 0
    for taken in range(1, 6):
        next(iterator)
        deadline = time.monotonic() + 0.2
        while time.monotonic() < deadline:
            furthest = max(furthest, given - taken)
    iterator.close()

    # Two on the host and one being read, two on devices and one being placed.
    assert furthest <= 2 + 1 + 2 + 1


def test_the_books_balance_whenever_they_are_read() -> None:
    """At any moment rows read are delivered or held; after the end, delivered or dropped."""
    batches = jaxiter.iter_jax_batches(rows(*[5] * 20), batch_size=8, drop_last=True)
    for _ in batches:
        books = batches.stats()[0]
        assert books.rows_read >= books.rows_delivered

    books = batches.stats()[0]
    assert (books.rows_read, books.rows_delivered, books.rows_dropped) == (100, 96, 4)
    assert (books.batches_delivered, books.bytes_delivered) == (12, 12 * 8 * 4)
    assert min(books.source_s, books.transfer_s, books.next_s) >= 0


def test_x64_is_taken_where_iter_is_called() -> None:
    """64-bit values arrive whole if the thread that calls iter() has x64 on, and it alone."""
    owner: Any = jax if hasattr(jax, "enable_x64") else jax.experimental  # moved in jax 0.8
    source = [{"x": np.full(8, 2**40)}]
    with owner.enable_x64(True):
        wide = next(iter(jaxiter.iter_jax_batches(source, batch_size=8)))

    assert wide["x"].dtype == np.int64
    assert np.asarray(wide["x"]).tolist() == [2**40] * 8
    with pytest.raises(jaxiter.DataError, match="1099511627776"):
        next(iter(jaxiter.iter_jax_batches(source, batch_size=8)))


def test_a_source_may_reuse_its_buffer() -> None:
    """What was delivered does not change when the source overwrites its buffer."""

    def source() -> Iterator[dict[str, np.ndarray]]:
        buffer = np.empty((8, 1000), np.int32)
        for value in range(20):
            buffer[:] = value
            yield {"x": buffer}

    batches = list(jaxiter.iter_jax_batches(source, batch_size=8))

    assert [set(np.asarray(b["x"]).ravel().tolist()) for b in batches] == [{v} for v in range(20)]


def test_trees_come_back_as_they_were() -> None:
    """A bare array stays one; dicts and tuples keep their structure."""
    bare = next(iter(jaxiter.iter_jax_batches([np.arange(8)], batch_size=8)))
    tree = next(
        iter(
            jaxiter.iter_jax_batches(
                rows(8), batch_size=8, collate_fn=lambda b: (b["x"], {"y": b["x"] + 1})
            )
        )
    )

    assert isinstance(bare, jax.Array)
    assert np.asarray(tree[1]["y"]).tolist() == list(range(1, 9))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch_size": 0}, jaxiter.OptionError),
        ({"batch_size": DEVICES + 1}, jaxiter.OptionError),
        ({"nonsense": 1}, TypeError),
    ],
)
def test_wrong_arguments_raise_before_data_is_read(
    options: dict[str, Any], error: type[Exception]
) -> None:
    """Arguments are checked before the source is touched."""

    def source() -> Iterator[Any]:
        raise AssertionError("it was read")

    with pytest.raises(error):
        iter(jaxiter.iter_jax_batches(source, **options))


@pytest.mark.parametrize("how", ["held", "waiting in a thread"])
def test_the_interpreter_exits_with_live_iterators(how: str) -> None:
    """A program that ends in the middle of an epoch ends at once, with status 0."""
    program = f"""
import threading, jax, numpy as np
jax.config.update("jax_platforms", "cpu")
import jaxiter
def source():
    while True:
        yield {{"x": np.zeros(8)}}
def stuck():
    yield {{"x": np.zeros(8)}}
    threading.Event().wait()
def consume():
    try:
        list(iterator)
    except jaxiter.ClosedError:
        pass
iterator = iter(jaxiter.iter_jax_batches(source if {how!r} == "held" else stuck, batch_size=8))
if {how!r} == "held":
    next(iterator)
else:
    threading.Thread(target=consume, daemon=True).start()
"""
    for _ in range(3):  # what a thread is at when the interpreter goes is a matter of chance
        done = subprocess.run(
            [sys.executable, "-c", program],
            check=False,
            cwd=ROOT,
            timeout=60,
            capture_output=True,
            text=True,
        )

        assert (done.returncode, done.stderr) == (0, "")
