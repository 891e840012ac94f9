"""What is said of outcomes, and what follows from them."""

from __future__ import annotations

import pytest

from harness import Died, Hung, Outcome, Raised, Returned, Undecided
from harness.outcome import needs_fresh_processes
from harness.records import Event
from harness.supervise import with_followers


def died(rank: int, at_s: float, signal: str | None = "SIGKILL", status: int | None = None) -> Died:
    """Make the outcome of a rank that died."""
    return Died(rank=rank, elapsed_s=at_s, signal=signal, exit_status=status)


def raised(kind: str, left_threads: tuple[str, ...] = ()) -> Raised:
    """Make the outcome of a rank that raised."""
    return Raised(rank=0, type=kind, mro=(kind,), message="", left_threads=left_threads)


@pytest.mark.parametrize(
    ("outcomes", "followed"),
    [
        ([died(0, 1.0), died(1, 1.2, "SIGABRT"), died(2, 1.3, "SIGABRT")], [None, 0, 0]),
        ([died(0, 1.2, "SIGABRT"), died(1, 1.2), died(2, 1.2, "SIGABRT")], [1, None, 1]),
        ([died(0, 1.0, None, 3), died(1, 1.0, None, 1)], [None, 0]),
        ([Returned(rank=0), died(1, 1.0)], [None]),
        ([died(0, 9.0, "SIGABRT"), died(1, 2.0, "SIGABRT")], [1, None]),
        ([died(0, 9.0), died(1, 2.0, "SIGABRT")], [1, None]),
    ],
)
def test_deaths_name_the_one_that_came_first(
    outcomes: list[Outcome], followed: list[int | None]
) -> None:
    """The first death is nobody's follower; of several at once it is one that JAX did not cause."""
    found = with_followers(outcomes, {})

    assert [outcome.after for outcome in found if isinstance(outcome, Died)] == followed


def test_a_death_after_a_stop_names_the_stopped_rank() -> None:
    """A rank that was stopped before another died is what came first."""
    hung = Hung(rank=0, stacks="", why="", stopped=True)

    (_, death) = with_followers([hung, died(1, 8.0)], {0: 1.0})

    assert isinstance(death, Died)
    assert death.after == 0


@pytest.mark.parametrize(
    ("outcomes", "fresh"),
    [
        ([Returned(rank=0), Returned(rank=1)], False),
        ([raised("ValueError"), raised("ValueError")], False),
        ([raised("ValueError"), raised("KeyError")], True),
        ([raised("ValueError"), Returned(rank=1)], True),
        ([Returned(rank=0, left_threads=("reader",)), Returned(rank=1)], True),
        ([Returned(rank=0), died(1, 1.0)], True),
        ([Returned(rank=0), Hung(rank=1, stacks="", why="")], True),
        ([Undecided(rank=0, stacks="", why="")], True),
    ],
)
def test_only_ranks_that_ended_alike_are_kept(outcomes: list[Outcome], fresh: bool) -> None:
    """All returned, or all raised one type, and no thread left: anything else needs new ranks."""
    assert needs_fresh_processes(outcomes) == fresh


def test_descriptions_say_what_became_of_the_rank() -> None:
    """Each outcome describes itself with rank, ending, last event and time."""
    events = (Event(7, "batch", 1.0, {"k": 3}),)
    outcomes = [
        Returned(rank=0, events=events, elapsed_s=1.5, value=[1], left_threads=("reader",)),
        Died(rank=1, elapsed_s=2.0, exit_status=3, after=0, detail="Ray says more."),
        Hung(rank=2, events=events, stacks="", why="rank 1 died", stopped=True),
    ]

    assert [outcome.describe() for outcome in outcomes] == [
        (
            "Rank 0 returned [1] after event #7 'batch' (k=3), at 1.5 s. "
            "It left threads behind: reader."
        ),
        (
            "Rank 1 died with exit status 3 before its first event, at 2.0 s. It followed rank 0. "
            "Ray says more."
        ),
        "Rank 2 was stopped (SIGSTOP) after event #7 'batch' (k=3), at 0.0 s: rank 1 died.",
    ]


class _Wordless:
    def __repr__(self) -> str:
        raise RuntimeError


def test_a_value_that_fails_to_describe_itself_is_described() -> None:
    """Whatever a rank returns, its outcome has words."""
    outcome = Returned(rank=0, value=_Wordless(), elapsed_s=1.0)

    assert outcome.describe() == (
        "Rank 0 returned <_Wordless, no text: RuntimeError> before its first event, at 1.0 s."
    )
