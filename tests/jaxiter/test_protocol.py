"""The state machine: any order of events leads all processes to the same end."""

import dataclasses
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxiter.agreement import Terms
from jaxiter.deciding import Timing
from tests.jaxiter.simulated import Plan, Seen, Simulation

BATCH = 4
SLACK_S = 3.0  # virtual: more than any run without a fault takes
TIMEOUT_S = 20.0

Ends = Literal["drop", "pad", "equal"]

ends: st.SearchStrategy[Ends] = st.sampled_from(["drop", "pad", "equal"])
seeds = st.integers(0, 2**32 - 1)
plans = st.lists(
    st.builds(
        Plan,
        full=st.integers(0, 12),
        tail=st.integers(0, BATCH - 1),
        step_s=st.sampled_from([0.0, 0.001, 0.1]),
        read_s=st.sampled_from([0.0, 0.001, 0.1]),
    ),
    min_size=1,
    max_size=5,
)
thorough = settings(max_examples=300, deadline=None, derandomize=True)


def simulate(
    of: list[Plan],
    how: Ends,
    seed: int,
    *,
    row_sets: tuple[int, ...] | None = None,
    abort: bool = False,
    **options: Any,
) -> tuple[Simulation, list[Seen]]:
    terms = Terms(BATCH, how, 1, row_sets or tuple(range(len(of))))
    simulation = Simulation(of, terms, Timing.of(TIMEOUT_S, abort), seed, **options)
    return simulation, simulation.run()


def expected_batches(of: list[Plan], how: Ends) -> int | None:
    """Return how many batches each process gets, by the definition; None if that is an error."""
    rows = [plan.full * BATCH + plan.tail for plan in of]
    if how == "drop":
        return min(row // BATCH for row in rows)
    if how == "pad":
        return max(-(-row // BATCH) for row in rows)
    return -(-rows[0] // BATCH) if len(set(rows)) == 1 else None


def alike(seen: list[Seen]) -> bool:
    """Whether all processes saw as many batches and the same end."""
    return len({(len(s.batches), s.end, s.error) for s in seen}) == 1


@thorough
@given(plans, ends, seeds)
def test_counts_are_those_of_the_definition(of: list[Plan], how: Ends, seed: int) -> None:
    """Without faults, the number of batches is the oracle's and nobody waits for a clock."""
    _, seen = simulate(of, how, seed)

    assert alike(seen)
    batches = expected_batches(of, how)
    if batches is None:
        assert seen[0].error is not None
        assert seen[0].error.kind == "UnevenError"
        assert len(seen[0].batches) == min(plan.full for plan in of)
    else:
        assert (seen[0].end, len(seen[0].batches)) == ("end", batches)
    assert max(s.ended_at_s for s in seen) < SLACK_S


@thorough
@given(plans, ends, seeds)
def test_rows_are_conserved(of: list[Plan], how: Ends, seed: int) -> None:
    """Each process delivers its own rows in order; what is missing is what drop_last leaves out."""
    _, seen = simulate(of, how, seed)

    for plan, mine in zip(of, seen, strict=True):
        rows = [BATCH] * plan.full + [plan.tail] * (plan.tail > 0 and how != "drop")
        got = [count for count, _ in mine.batches]
        assert got == [*rows, *[0] * len(got)][: len(got)]
        if how == "pad":
            assert sum(got) == sum(rows)


@thorough
@given(plans, ends, seeds, st.data())
def test_failures_reach_all_alike(of: list[Plan], how: Ends, seed: int, data: Any) -> None:
    """Whichever sources fail, all processes see as many batches and the same error, at once."""
    for plan in of:
        if data.draw(st.booleans()):
            plan.fail_at = data.draw(st.integers(0, plan.full))
    _, seen = simulate(of, how, seed)

    assert alike(seen)
    assert max(s.ended_at_s for s in seen) < SLACK_S
    counts = [plan.full if plan.fail_at is None else plan.fail_at for plan in of]
    failed = [p for p, plan in enumerate(of) if plan.fail_at is not None]
    error = seen[0].error
    if error is None:
        reachable = [c for p, c in enumerate(counts) if how != "drop" or p in failed]
        assert not failed or len(seen[0].batches) <= min(reachable)
        assert how == "drop" or not failed
    elif error.kind == "SourceError":
        assert error.process in failed
        assert len(seen[0].batches) <= counts[error.process]
    else:
        assert error.kind == "UnevenError"


@thorough
@given(plans, ends, seeds, st.data())
def test_leaving_alone_stops_all(of: list[Plan], how: Ends, seed: int, data: Any) -> None:
    """When consumers leave, those that go on raise PeerLeftError, at most a look-ahead later."""
    for plan in of:
        if data.draw(st.booleans()):
            plan.leave_at = data.draw(st.integers(0, 12))
    most_ahead = data.draw(st.sampled_from([1, 4, 16]))
    _, seen = simulate(of, how, seed, most_ahead=most_ahead)

    assert max(s.ended_at_s for s in seen) < SLACK_S
    assert "open" not in {s.end for s in seen}
    left = [len(s.batches) for s in seen if s.end == "left"]
    errors = {s.error for s in seen if s.error is not None}
    assert len(errors) <= 1
    for error in errors:
        assert error.kind in ("PeerLeftError", "UnevenError")
        if error.kind == "PeerLeftError":
            assert error.process is not None
            assert seen[error.process].end == "left"
    if left:
        furthest = max(len(s.batches) for s in seen)
        assert furthest - min(left) <= max(2, most_ahead) + 2
    stayed = {len(s.batches) for s in seen if s.end != "left"}
    assert len(stayed) <= 1


@thorough
@given(plans, ends, seeds, st.integers(0, 12))
def test_leaving_together_is_no_error(of: list[Plan], how: Ends, seed: int, at: int) -> None:
    """When all leave after the same batch, nobody raises, and nobody is warned of."""
    batches = expected_batches(of, how)
    if batches is None:
        batches = min(plan.full for plan in of)
    for plan in of:
        plan.leave_at = min(at, batches)
    _, seen = simulate(of, how, seed)

    assert {(s.end, len(s.batches)) for s in seen} == {("left", min(at, batches))}
    assert not [log for s in seen for log in s.logs if "left its loop" in log]


@thorough
@given(plans, ends, seeds, st.data())
def test_a_lost_process_is_named(of: list[Plan], how: Ends, seed: int, data: Any) -> None:
    """When one never comes, or dies, the others raise SyncTimeoutError naming it, in time."""
    lost = data.draw(st.integers(0, len(of) - 1))
    if data.draw(st.booleans()):
        of[lost].absent = True
    else:
        of[lost].dies_at = data.draw(st.integers(0, of[lost].full))
    _, seen = simulate(of, how, seed)

    others = [s for p, s in enumerate(seen) if p != lost and not of[p].absent]
    latest = max((s.ended_at_s for s in others), default=0.0)
    assert latest < 2 * TIMEOUT_S
    assert "open" not in {s.end for s in others}
    assert len({(len(s.batches), s.end) for s in others}) <= 1
    for s in others:
        if s.error is not None and s.error.kind == "SyncTimeoutError":
            assert s.error.process == lost
            assert f"process {lost}: " in s.error.message


@thorough
@given(plans, seeds, st.data())
def test_padding_follows_the_peers_schema(of: list[Plan], seed: int, data: Any) -> None:
    """A process that pads uses the schema its peers have at that batch, changes included."""
    changes = {
        position: f"s{position}" for position in data.draw(st.sets(st.integers(0, 12), max_size=4))
    }
    for plan in of:
        plan.schema_changes = changes
    _, seen = simulate(of, "pad", seed)

    assert alike([dataclasses.replace(s, batches=[(1, x) for _, x in s.batches]) for s in seen])
    assert all(s.end == "end" for s in seen)
    for columns in zip(*[s.batches for s in seen], strict=True):
        assert len({schema for _, schema in columns}) == 1


@thorough
@given(plans, ends, seeds, st.data())
def test_schemas_that_differ_stop_all(of: list[Plan], how: Ends, seed: int, data: Any) -> None:
    """The first batch whose schema differs between processes is delivered by none."""
    odd = data.draw(st.integers(0, len(of) - 1))
    at = data.draw(st.integers(0, 12))
    of[odd].schema_changes = {at: "other"}
    _, seen = simulate(of, how, seed)

    assert alike(seen)
    got = len(seen[0].batches)
    for position in range(got):
        real = {schema for s in seen for rows, schema in [s.batches[position]] if rows}
        assert len(real) == 1
    if seen[0].error is not None and seen[0].error.kind == "MismatchError":
        assert got == seen[0].error.batch == at


@thorough
@given(plans, ends, seeds, st.data())
def test_a_batch_that_cannot_be_placed_stops_all(
    of: list[Plan], how: Ends, seed: int, data: Any
) -> None:
    """The process that cannot place a batch raises there; the others raise the same error."""
    odd = data.draw(st.integers(0, len(of) - 1))
    of[odd].place_fails_at = data.draw(st.integers(0, 12))
    _, seen = simulate(of, how, seed)

    assert max(s.ended_at_s for s in seen) < SLACK_S
    if seen[odd].error is not None and seen[odd].error.kind == "InternalError":
        assert len(seen[odd].batches) == of[odd].place_fails_at
        # Unless the others had been told before how the epoch ends.
        told = {"UnevenError"} if expected_batches(of, how) is None else {None}
        kinds = {None if s.error is None else s.error.kind for s in seen}
        assert kinds <= {"InternalError", *told}


@given(seeds)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_options_that_differ_are_named(seed: int) -> None:
    """Options that differ raise on all, before a source is read, with values and processes."""
    agreed: list[dict[str, object]] = [{"batch_size": 4}, {"batch_size": 4}, {"batch_size": 8}]
    simulation, seen = simulate([Plan(3), Plan(3), Plan(3)], "pad", seed, agreed=agreed)

    assert alike(seen)
    assert seen[0].error is not None
    assert "batch_size is 4 on processes 0 and 1; 8 on process 2" in seen[0].error.message
    assert simulation.read == [0, 0, 0]


@given(seeds)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_replicated_rows_must_be_the_same(seed: int) -> None:
    """Two processes whose devices hold the same rows, but that read others, raise on all."""
    of = [Plan(4, checksum="a"), Plan(4, checksum="b"), Plan(4, checksum="c")]
    _, seen = simulate(of, "drop", seed, row_sets=(0, 1, 1))

    assert alike(seen)
    assert seen[0].error is not None
    assert seen[0].error.kind == "MismatchError"
    assert "processes 1 and 2" in seen[0].error.message


@pytest.mark.parametrize("stuck_in", ["collective of the batch after", "collective of the same"])
def test_abort_ends_a_process_stuck_in_its_step(stuck_in: str) -> None:
    """With abort_on_loss, a process stuck in its own step is ended after the log named the peer."""
    at = 1 if stuck_in.endswith("after") else 0
    of = [Plan(50, leave_at=1, step_s=0.1), Plan(50, stuck_at=at)]
    _, seen = simulate(of, "pad", 7, abort=True)

    assert seen[1].aborted
    assert "process 0 left its loop after 1 batches" in seen[1].logs[0]


def test_abort_ends_survivors_of_a_death() -> None:
    """With abort_on_loss, survivors stuck in a step that the dead one misses are ended."""
    of = [Plan(5, stuck_at=1), Plan(5, dies_at=3), Plan(5, stuck_at=1)]
    _, seen = simulate(of, "pad", 7, abort=True)

    assert [s.aborted for s in seen] == [True, False, True]
    assert "process 1: no sign of life" in seen[0].logs[0]


def test_no_abort_once_the_consumer_knows() -> None:
    """With abort_on_loss, a process whose loop ended by the error is left alone."""
    of = [Plan(5, leave_at=1), Plan(5)]
    _, seen = simulate(of, "pad", 7, abort=True)

    assert (seen[1].end, seen[1].aborted) == ("error", False)


def test_a_busy_consumer_is_no_fault() -> None:
    """While no consumer waits the clock stands: a step of many time-outs is no error."""
    of = [Plan(6, step_s=5 * TIMEOUT_S), Plan(6, step_s=0.0)]
    of[1].step_s = of[0].step_s
    _, seen = simulate(of, "pad", 3)

    assert {s.end for s in seen} <= {"end", "error"}
    assert alike(seen)


def test_a_slow_source_is_warned_of() -> None:
    """A process that others wait for is named in every log, every 30 seconds."""
    terms = Terms(BATCH, "pad", 1, (0, 1))
    simulation = Simulation([Plan(1), Plan(1, dies_at=1)], terms, Timing.of(100.0, False), 5)
    seen = simulation.run()

    late = [log for log in seen[0].logs if "is" in log and "late" in log]
    assert [log.split(" is ")[1].split(":")[0] for log in late] == [
        "30 s late",
        "60 s late",
        "90 s late",
    ]
    assert "process 1: no sign of life" in late[0]


def test_messages_grow_with_processes_not_their_square() -> None:
    """A decision costs at most one report a process, whatever their number."""
    few, _ = simulate([Plan(200) for _ in range(2)], "drop", 1, most_ahead=64)
    many, _ = simulate([Plan(200) for _ in range(16)], "drop", 1, most_ahead=64)

    assert many.sent / max(1, many.decisions) <= 16 * 2
    assert few.sent / max(1, few.decisions) <= 2 * 2
