"""The record of a rank."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from harness.records import Recorder, parse


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name of an empty record."""
    path = tmp_path / "record"
    path.touch()
    return path


@pytest.fixture
def recorder(path: Path) -> Iterator[Recorder]:
    """Give a recorder that appends to `path`."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    yield Recorder(fd)
    os.close(fd)


@pytest.mark.parametrize(
    "value",
    [None, True, 3, -2.5, "text\nwith lines", [1, [2.0, "x"]], {"a": {"b": None}}, float("inf")],
)
def test_json_values_come_back(recorder: Recorder, path: Path, value: Any) -> None:
    """A JSON value comes back as it was."""
    recorder.record("value", {"it": value})

    (event,) = parse(path.read_bytes())
    assert (event.seq, event.kind, event.fields) == (0, "value", {"it": value})


@pytest.mark.parametrize("value", [np.int64(2**40), np.float32(0.5), np.bool_(True)])
def test_numpy_scalars_come_back_as_numbers(recorder: Recorder, path: Path, value: Any) -> None:
    """A numpy scalar comes back as the Python number it stands for."""
    recorder.record("value", {"it": value})

    (event,) = parse(path.read_bytes())
    assert event.fields["it"] == value.item()
    assert type(event.fields["it"]) is type(value.item())


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.array(7, np.uint8),
        np.zeros((0, 4), np.float32),
        np.arange(4, dtype=">i4"),
        np.array([True, False]),
        np.arange(6)[::-2],
        np.array(["ab", "c"]),
        np.array([1.5, -2.0], ml_dtypes.bfloat16),
        np.array([1.5, -2.0], ml_dtypes.float8_e5m2),
        np.array(["2020-01-01"], "datetime64[D]"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays_come_back(recorder: Recorder, path: Path, array: np.ndarray[Any, Any]) -> None:
    """An array comes back with its dtype, shape and values, also from inside a list."""
    recorder.record("value", {"it": [array]})

    (event,) = parse(path.read_bytes())
    (back,) = event.fields["it"]
    assert (back.dtype, back.shape, back.tolist()) == (array.dtype, array.shape, array.tolist())


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([object()]), 1j])
def test_what_cannot_be_recorded_is_refused(recorder: Recorder, path: Path, value: Any) -> None:
    """A value that is no JSON raises a TypeError that names the event, and writes nothing."""
    with pytest.raises(TypeError, match="'odd'"):
        recorder.record("odd", {"it": value})

    assert path.read_bytes() == b""


def test_a_torn_last_line_is_left_out(recorder: Recorder, path: Path) -> None:
    """A record that was cut short anywhere gives the events that are whole."""
    for k in range(3):
        recorder.record("batch", {"k": k})
    data = path.read_bytes()

    for length in range(len(data) + 1):
        events = parse(data[:length])
        assert [event.fields["k"] for event in events] == list(range(data[:length].count(b"\n")))


def test_a_strange_line_is_an_event_of_its_own() -> None:
    """A line that is no event is shown, and the others are read."""
    events = parse(b'[0,"a",1.0,{}]\n\xff{nonsense\n[1,"b",2.0,{}]\n')

    assert [event.kind for event in events] == ["a", "unreadable", "b"]


def test_threads_may_record_at_once(recorder: Recorder, path: Path) -> None:
    """Events of several threads are whole, numbered without gaps, in the order of the record."""

    def record_many() -> None:
        for _ in range(100):
            recorder.record("x", {"a": np.arange(50)})

    threads = [threading.Thread(target=record_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    events = parse(path.read_bytes())
    assert [event.seq for event in events] == list(range(400))
    assert all(event.kind == "x" for event in events)


def test_recording_is_cheap(recorder: Recorder) -> None:
    """A small event costs well under 0.1 ms (in CPU time, so that a loaded machine passes too)."""
    before_s = time.process_time()
    for k in range(2000):
        recorder.record("batch", {"k": k, "rows": 4})
    cost_s = (time.process_time() - before_s) / 2000

    assert cost_s < 1e-4
