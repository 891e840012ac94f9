"""A right observation passes; one that is wrong in one thing fails the clauses that speak of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.checks import checks_of
from conformance.clauses import clauses
from conformance.judge import Verdict, expectations, judge
from conformance.model import Case, Fault, Shard, Topology, Use, X
from conformance.observations import read
from conformance.trial import Trial
from harness import Died, Hung, Outcome, Raised, Undecided
from tests.conformance.breaks import (
    DELIVERY,
    P2D2,
    SHARES,
    SHUFFLED,
    SPLIT,
    SPLIT_DROPPED,
    Break,
    right_of,
)
from tests.conformance.breaks_delivery import DELIVERED_WRONG
from tests.conformance.breaks_endings import ENDED_WRONG
from tests.conformance.breaks_promises import PROMISES_WRONG
from tests.conformance.breaks_rows import SHUFFLED_WRONG, SPLIT_WRONG
from tests.conformance.faking import Fake, right, right_split
from tests.conformance.groups import cases_of

EVERY_BREAK = (
    *DELIVERED_WRONG,
    *ENDED_WRONG,
    *SHUFFLED_WRONG,
    *SPLIT_WRONG,
    *PROMISES_WRONG,
)


@pytest.mark.parametrize("wrong", EVERY_BREAK, ids=lambda b: b.name)
def test_one_fault_fails_the_clauses_that_speak_of_it(wrong: Break) -> None:
    """A right observation passes; one fault in it fails exactly the clauses named, in words."""
    fake = right_of(wrong.case)
    before = judge(wrong.case, P2D2, fake.outcomes())
    wrong.do(fake)
    after = judge(wrong.case, P2D2, fake.outcomes())

    assert before == dict.fromkeys(wrong.case.clauses, Verdict("pass"))
    assert {clause for clause, v in after.items() if v.kind == "fail"} == wrong.fails
    assert {v.kind for v in after.values()} <= {"pass", "fail"}
    for clause in wrong.fails:
        for words in wrong.words:
            assert words in after[clause].words


def test_each_check_bites() -> None:
    """Every check that decides some clause finds one of the faults."""
    checks = {check for clause in clauses() for check in checks_of(clause)}
    found = set()
    for wrong in EVERY_BREAK:
        fake = right_of(wrong.case)
        wrong.do(fake)
        trial = Trial(wrong.case, P2D2, expectations(wrong.case, P2D2), read(fake.outcomes()))
        for clause in wrong.case.clauses:
            speaks = [check for check in checks_of(clause) if check(trial)][:1]
            found.update(speaks)

    assert found == checks


@pytest.mark.parametrize(
    "topology",
    [Topology(1, 1), Topology(1, 2), Topology(2, 1), P2D2, Topology(3, 2), Topology(4, 1)],
    ids=str,
)
def test_right_observations_pass_every_case(topology: Topology) -> None:
    """What the oracle expects of each case of the suite, observed, passes each of its clauses."""
    wrong = {
        f"{group}/{case.name}": v
        for group, case in cases_of(topology)
        if case.split is None
        for v in judge(case, topology, right(case, topology).outcomes()).values()
        if v.kind != "pass"
    }

    assert wrong == {}


@pytest.mark.parametrize("shares", [[6, 13], [19, 0], [1, 18]])
@pytest.mark.parametrize("case", [SPLIT, SPLIT_DROPPED], ids=["padded", "dropped"])
def test_a_split_may_share_its_rows_in_any_way(case: Case, shares: list[int]) -> None:
    """The rows of a split pass on whichever process they arrive."""
    rows = [row for share in SHARES[case.name] for row in share]
    fake = right_split(case, P2D2, [rows[: shares[0]], rows[shares[0] :]])
    found = judge(case, P2D2, fake.outcomes())

    assert found == dict.fromkeys(case.clauses, Verdict("pass"))


def _yield_numpy(fake: Fake) -> None:
    for process in (0, 1):
        fake.batch(process, 1).raw = [{"path": "['id']", "type": "ndarray"}]


def _yield_scalars(fake: Fake) -> None:
    for process in (0, 1):
        scalar: dict[str, Any] = {"device": process, "index": [], "data": np.array(3, np.int32)}
        found = {"path": "['id']", "shape": [], "dtype": "int32", "shards": [scalar]}
        fake.batch(process, 1).raw = [found]


def _yield_nothing(fake: Fake) -> None:
    for process in (0, 1):
        fake.batch(process, 1).leaves.clear()


def _yield_tuple(fake: Fake) -> None:
    for process in (0, 1):
        leaves = fake.batch(process, 1).leaves
        fake.batch(process, 1).raw = [
            column.fields(f"[{i}]") for i, column in enumerate(leaves.values())
        ]


def _yield_shards_split_in_columns(fake: Fake) -> None:
    for process in (0, 1):
        found = fake.leaf(process, 1, "x").fields("['x']")
        for shard, cells in zip(found["shards"], (2, 1), strict=True):
            shard["data"] = shard["data"][:, :cells]
        fake.batch(process, 1).raw = [fake.leaf(process, 1, "id").fields("id"), found]


def _lose_column_on_one(fake: Fake) -> None:
    del fake.batch(1, 1).leaves["x"]


@pytest.mark.parametrize(
    "odd",
    [
        _yield_numpy,
        _yield_scalars,
        _yield_nothing,
        _yield_tuple,
        _yield_shards_split_in_columns,
        _lose_column_on_one,
    ],
)
@pytest.mark.parametrize("case", [DELIVERY, SHUFFLED, SPLIT], ids=lambda c: c.name)
def test_whatever_is_yielded_is_judged(odd: Callable[[Fake], None], case: Case) -> None:
    """A batch of a kind that no check looks for fails the clauses; it does not break a check."""
    fake = right_of(case)
    odd(fake)
    every = replace(case, clauses=tuple(c for c in clauses() if _fits(c, case)))
    found = judge(every, P2D2, fake.outcomes())

    assert {v.kind for v in found.values()} in ({"pass", "fail"}, {"fail"})
    assert all(v.words for v in found.values() if v.kind == "fail")


def _fits(clause: str, case: Case) -> bool:
    """Whether a clause can be asked of a case that no peer leaves and that has no mask."""
    group = clause.partition("-")[0]
    needs = clause == "LEAVE-2" or group in ("PEER", "MASK")
    return (group == "SPLIT") == (case.split is not None) and not needs


def _hung(fake: Fake, rank: int, events: int) -> Hung:
    own = fake.outcomes()[rank].events[:events]
    return Hung(rank=rank, events=own, stacks="", why="process 1 waits for process 0")


def _died(fake: Fake, rank: int, *, after: int | None = None) -> Died:
    events = fake.outcomes()[rank].events[:3]
    return Died(rank=rank, events=events, signal="SIGKILL", after=after, elapsed_s=2.0)


def _raised(rank: int) -> Raised:
    return Raised(rank=rank, type="TypeError", mro=("TypeError",), message="no sum of strings")


def _undecided(fake: Fake, rank: int) -> Undecided:
    events = fake.outcomes()[rank].events[:3]
    return Undecided(rank=rank, events=events, stacks="", why="the deadline passed")


@pytest.mark.parametrize(
    ("end", "kind", "words"),
    [
        (
            lambda f: [_hung(f, 0, 6), _hung(f, 1, 4)],
            "hang",
            [
                "process 0: 1 batches, no end, stuck in next() for batch 1",
                "process 1: 1 batches, no end, stuck in the computation after batch 0",
                "process 1 waits for process 0",
            ],
        ),
        (
            lambda f: [_hung(f, 0, 0), f.outcomes()[1]],
            "hang",
            ["process 0: no batch, stuck before its first next()", "process 1: 3 batches, stop"],
        ),
        (
            lambda f: [_died(f, 0), _hung(f, 1, 2)],
            "crash",
            ["process 0: 1 batches, no end, Process 0 died by SIGKILL", "process 1: 1 batches"],
        ),
        (
            lambda f: [_died(f, 0, after=1), _died(f, 1)],
            "crash",
            ["process 0", "It followed process 1", "process 1"],
        ),
        (lambda f: [_died(f, 0, after=1), _hung(f, 1, 2)], "hang", ["It followed process 1"]),
        (
            lambda f: [_undecided(f, 0), f.outcomes()[1]],
            "undecided",
            ["process 0: 1 batches, no end", "the deadline passed"],
        ),
        (
            lambda f: [f.outcomes()[0], _raised(1)],
            "crash",
            ["process 1 raised outside the iterator: TypeError: no sum of strings"],
        ),
        (
            lambda f: [_hung(f, 0, 4), _raised(1)],
            "crash",
            [
                "process 1 raised outside the iterator: TypeError: no sum of strings",
                "process 0: 1 batches, no end, stuck in the computation after batch 0",
            ],
        ),
    ],
)
def test_a_run_without_an_end_is_no_pass(
    end: Callable[[Fake], list[Outcome]], kind: str, words: list[str]
) -> None:
    """A process that hung, died, raised or was cut short decides every clause of its case."""
    found = judge(DELIVERY, P2D2, end(right(DELIVERY, P2D2)))

    assert set(found) == set(DELIVERY.clauses)
    assert {v.kind for v in found.values()} == {kind}
    for text in words:
        assert text in found["VALUE-1"].words


def test_rows_without_an_id_are_judged_by_their_place() -> None:
    """Where no column tells the row, values at each place decide whether rows came in order."""
    case = replace(
        DELIVERY,
        clauses=("SIZE-1", "PAD-3", "ORDER-1"),
        shards=tuple(replace(shard, columns=(X,)) for shard in DELIVERY.shards),
    )
    fake = right(case, P2D2)
    before = judge(case, P2D2, fake.outcomes())
    rows = fake.leaf(0, 1, "x").rows
    rows[[0, 1]] = rows[[1, 0]]
    after = judge(case, P2D2, fake.outcomes())

    assert before == dict.fromkeys(case.clauses, Verdict("pass"))
    assert {clause: v.kind for clause, v in after.items()} == {
        "SIZE-1": "pass",
        "PAD-3": "pass",
        "ORDER-1": "fail",
    }


def test_rows_in_another_place_are_named() -> None:
    """A value that differs is told with the rows that came in place of those that were due."""
    fake = right(DELIVERY, P2D2)
    for leaf in fake.epoch(1).batches[0].leaves.values():
        leaf.rows[:] = leaf.rows[::-1].copy()
    words = judge(DELIVERY, P2D2, fake.outcomes())["VALUE-1"].words

    assert "; by their ids came rows 3, 2, 1, 0 of process 1, due was rows 0, 1, 2, 3 of" in words


def test_epochs_are_judged_one_by_one() -> None:
    """A fault in a later epoch is found, and its epoch is named."""
    case = replace(DELIVERY, use=Use(epochs=3), clauses=("EPOCH-1", "EPOCH-2"))
    fake = right(case, P2D2)
    fake.epoch(1, epoch=2).batches[1].leaves["x"].rows[0] += 1
    found = judge(case, P2D2, fake.outcomes())

    assert found["EPOCH-1"].words.startswith("epoch 2, process 1, batch 1, column 'x', value")
    assert found["EPOCH-2"].kind == "fail"


def test_an_epoch_that_never_came_is_missed() -> None:
    """A process that stops after the first of several epochs fails."""
    case = replace(DELIVERY, use=Use(epochs=2), clauses=("EPOCH-1",))
    fake = right(case, P2D2)
    del fake.processes[0].epochs[1]
    del fake.processes[1].epochs[1]
    found = judge(case, P2D2, fake.outcomes())

    assert "epoch 1: process 0 should end with stop after 3 batches" in found["EPOCH-1"].words


def test_ends_that_timing_decides_are_alike_on_all() -> None:
    """What lies beyond the agreed end may be noticed, or not, but by all processes alike."""
    faulty = Shard((4, 4, 4), fault=Fault("source", 2))
    case = Case(
        "beyond",
        ("ERROR-1",),
        (faulty, Shard((4, 4))),
        options={"batch_size": 4, "drop_last": True},
    )
    noticed, mixed, short = (right(case, P2D2) for _ in range(3))
    for process in (0, 1):
        noticed.epoch(process).fail()
    mixed.epoch(0).fail()
    for process in (0, 1):
        short.epoch(process).batches.pop()

    verdicts = [judge(case, P2D2, f.outcomes())["ERROR-1"] for f in (noticed, mixed, short)]
    assert judge(case, P2D2, right(case, P2D2).outcomes())["ERROR-1"].kind == "pass"
    assert [v.kind for v in verdicts] == ["pass", "fail", "fail"]
    assert "the processes ended differently" in verdicts[1].words
    assert "process 0 should get 2 batches" in verdicts[2].words
