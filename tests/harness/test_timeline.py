"""The timeline of a run, as Perfetto takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, TypeAdapter

from harness import Died, Event, Hung, Outcome, Raised, Returned, timeline


class _Common(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(min_length=1)]
    pid: int
    tid: int
    args: dict[str, Any]


class _Slice(_Common):
    ph: Literal["X"]
    cat: str
    ts: NonNegativeFloat
    dur: NonNegativeFloat


class _Instant(_Common):
    ph: Literal["i"]
    cat: str
    ts: NonNegativeFloat
    s: Literal["g", "p", "t"]
    cname: str | None = None


class _Meta(_Common):
    ph: Literal["M"]
    name: Literal["process_name", "process_sort_index", "thread_name"]


class _Trace(BaseModel):
    """The object form of the Chrome trace event format, with the phases that are used."""

    model_config = ConfigDict(extra="forbid", strict=True)
    displayTimeUnit: Literal["ms", "ns"]  # noqa: N815 - the format's name
    traceEvents: list[Annotated[_Slice | _Instant | _Meta, Field(discriminator="ph")]]  # noqa: N815
    otherData: dict[str, Any]  # noqa: N815


EVENTS = (
    Event(0, "phase", 10.0, {"phase": "read", "batch": 0}),
    Event(1, "batch", 10.25, {"batch": 0, "shapes": {"x": [8, 4]}, "x": np.ones(3, np.int8)}),
    Event(2, "phase", 10.5, {"phase": "step", "batch": 0}),
    Event(3, "fault", 10.6, {"fault": "kill", "batch": 0, "nan": float("nan")}),
)
COMMON: dict[str, Any] = {"events": EVENTS, "start_s": 10.0, "host": "a"}
OUTCOMES: list[Outcome] = [
    Returned(rank=0, elapsed_s=2.0, **COMMON),
    Died(rank=1, elapsed_s=1.0, signal="SIGKILL", **COMMON),
    Raised(rank=2, elapsed_s=3.0, type="E", mro=("E",), message="", t_s=10.75, **COMMON),
    Hung(rank=3, elapsed_s=5.0, stacks="", why="", **{**COMMON, "host": "b"}),
    Returned(rank=4),
]


def read(path: Path) -> _Trace:
    """Read a trace as strictly as the format is written down; NaN is no JSON."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    content = json.loads(path.read_text(), parse_constant=refuse)
    return TypeAdapter(_Trace).validate_python(content)


def test_a_trace_keeps_to_the_format(tmp_path: Path) -> None:
    """Every outcome and event gives what the format allows, with one track a rank."""
    timeline.save(OUTCOMES, tmp_path / "trace.json")
    trace = read(tmp_path / "trace.json")

    names = [e.args["name"] for e in trace.traceEvents if e.name == "process_name"]
    assert names == [f"rank {rank}" for rank in range(5)]
    assert trace.otherData["verdict"].startswith("died: rank 1")
    assert "2 hosts" in trace.otherData["clocks"] or "3 hosts" in trace.otherData["clocks"]


@pytest.mark.parametrize(("rank", "end_us"), [(0, 2e6), (1, 1e6), (2, 0.75e6), (3, 5e6)])
def test_phases_are_slices_from_one_to_the_next(rank: int, end_us: float) -> None:
    """A phase lasts until the next, the last one until the rank ended."""
    events = timeline.trace(OUTCOMES)["traceEvents"]
    slices = [(e["name"], e["ts"], e["dur"]) for e in events if (e["ph"], e["pid"]) == ("X", rank)]

    assert slices == [("read 0", 0.0, 0.5e6), ("step 0", 0.5e6, end_us - 0.5e6)]


def test_faults_and_endings_are_marked() -> None:
    """Batches, faults and endings are instants; a fault is seen across all tracks."""
    events = timeline.trace(OUTCOMES)["traceEvents"]
    marks = [(e["name"], e["ts"], e["s"]) for e in events if (e["ph"], e["pid"]) == ("i", 1)]

    assert marks == [
        ("batch 0", 0.25e6, "t"),
        ("fault: kill", 0.6e6, "g"),
        ("died by SIGKILL", 1e6, "t"),
    ]


def test_the_mark_of_an_ending_says_why() -> None:
    """What died or raised has its description or its error to click on."""
    events = timeline.trace(OUTCOMES)["traceEvents"]
    args = {e["pid"]: e["args"] for e in events if e.get("cat") == "end"}

    assert args[0] == {}
    assert args[1]["description"].startswith("Rank 1 died by SIGKILL after event")
    assert set(args[2]) == {"message", "traceback"}
