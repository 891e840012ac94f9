"""Messages and errors survive being written and read."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxiter
from jaxiter.agreement import Final, Standing
from jaxiter.errors import Note, note_of
from jaxiter.messages import Decision, Go, Hello, Report

texts = st.text(max_size=20)
small = st.integers(0, 10**9)
changes = st.lists(st.tuples(small, texts), max_size=3).map(tuple)
notes = st.builds(
    Note,
    kind=st.sampled_from(["DataError", "SourceError", "MismatchError"]),
    message=texts,
    process=st.none() | small,
    batch=st.none() | small,
    details=st.just((("column", "x"),)) | st.just(()),
)
standings = st.builds(
    Standing,
    held=small,
    ended=st.booleans(),
    tail=small,
    error=st.none() | notes,
    left=st.booleans(),
    taken=small,
    schemas=changes,
    sums=changes,
)
hellos = st.builds(
    Hello, agreed=st.dictionaries(texts, texts | st.none()), row_set=small, look_ahead=small
)
reports = st.builds(
    Report,
    standing=standings,
    hello=st.none() | hellos,
    seen=small,
    waited_s=st.integers(0, 10**6).map(lambda ms: ms / 1000),
    full=st.booleans(),
)
decisions = st.builds(
    Decision,
    upto=small,
    go=st.none()
    | st.builds(Go, look_ahead=small, patience_s=st.just(float("inf")) | st.floats(1, 9)),
    final=st.none()
    | st.builds(
        Final, error=st.none() | notes, left=st.none() | st.tuples(small, small), dropped=small
    ),
    schemas=changes,
    slow=texts,
)


@given(reports)
def test_reports_survive(report: Report) -> None:
    """A report that is written and read is the same."""
    assert Report.parse(report.text()) == report


@given(decisions)
def test_decisions_survive(decision: Decision) -> None:
    """A decision that is written and read is the same."""
    assert Decision.parse(decision.text()) == decision


@given(decisions, decisions)
def test_merged_decisions_say_both(one: Decision, two: Decision) -> None:
    """Two decisions merged say what both say; the later one rules."""
    both = one.then(two)

    assert both.upto == two.upto
    assert both.schemas == one.schemas + two.schemas
    assert both.go == (one.go or two.go)
    assert both.final == two.final


@given(reports, reports)
def test_merged_reports_say_both(one: Report, two: Report) -> None:
    """Two reports merged say what both say; the later one rules."""
    both = one.then(two)

    assert both.standing.schemas == one.standing.schemas + two.standing.schemas
    assert both.standing.sums == one.standing.sums + two.standing.sums
    assert both.hello == (one.hello or two.hello)
    assert (both.seen, both.waited_s, both.full) == (two.seen, two.waited_s, two.full)
    assert both.standing.batches("equal") == two.standing.batches("equal")


def test_a_report_of_a_steady_epoch_is_short() -> None:
    """A report takes few bytes when nothing special happens: it is sent very often."""
    assert len(Report(Standing(held=1_000_000, taken=999_990), seen=12345).text()) < 60


@pytest.mark.parametrize(
    "error",
    [
        jaxiter.OptionError("m", argument="batch_size", value=0),
        jaxiter.DataError("m", column="x", process=1, batch=2),
        jaxiter.MismatchError("m", process=1),
        jaxiter.UnevenError("m", batch=3),
        jaxiter.SourceError("m", process=0, batch=0),
        jaxiter.PeerLeftError("m"),
        jaxiter.SyncTimeoutError("m"),
        jaxiter.RendezvousError("m"),
        jaxiter.ClosedError("m"),
        jaxiter.SourceUsedError("m"),
        jaxiter.InternalError("m"),
    ],
)
def test_errors_survive_pickling_and_travel(error: jaxiter.JaxIterError) -> None:
    """An error keeps its class and attributes through pickle, and its class as a note."""
    copy = pickle.loads(pickle.dumps(error))
    far = note_of(error, 5, 6).error()

    assert type(copy) is type(far) is type(error)
    assert vars(copy) == vars(error)
    assert far.process == (5 if error.process is None else error.process)
    assert "m" in str(far)


def test_foreign_errors_become_source_errors() -> None:
    """Whatever a source raises becomes a SourceError that says what it was and where."""
    error = note_of(KeyError("gone"), 3, 7).error(KeyError("gone"))

    assert isinstance(error, jaxiter.SourceError)
    assert (error.process, error.batch) == (3, 7)
    assert "process 3, batch 7" in str(error)
    assert "KeyError: 'gone'" in str(error)


def test_long_messages_are_cut() -> None:
    """An error's text is bounded: it travels to every process."""
    assert len(note_of(ValueError("x" * 100_000), 0, 0).message) < 5000


def test_ray_s_value_errors_are_value_errors() -> None:
    """What Ray raises as a ValueError can be caught as one."""
    for kind in (
        jaxiter.OptionError,
        jaxiter.DataError,
        jaxiter.MismatchError,
        jaxiter.UnevenError,
    ):
        assert issubclass(kind, ValueError)
