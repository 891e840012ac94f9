"""From the outcomes of all ranks to what pytest reports: passed, skipped, or how they failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.outcomes import Failed

from harness.outcome import Died, Hung, Outcome, Raised, Returned, Undecided
from harness.output import last_words
from harness.pytest_plugin.on_rank import PICTURE
from harness.rank import qualified_name
from harness.screen import CAUSED
from harness.stacks import own_traceback, ranks_text, readable, together, without_harness
from harness.verdict import Verdict, verdict


class GangFailure(Failed):
    """A test failed on the ranks of its gang.

    Attributes:
        outcomes: what became of each rank, index = rank.
    """

    def __init__(self, text: str, outcomes: Sequence[Outcome]) -> None:
        super().__init__(_sendable(text), pytrace=False)
        self.outcomes = tuple(outcomes)


class RanksRaised(GangFailure):
    """Some or all ranks raised, and all others ended."""


class RanksDiffer(GangFailure):
    """Some ranks skipped, or failed as expected, and others did not."""


class GangHung(GangFailure):
    """The gang stood still."""


class GangDied(GangFailure):
    """A rank's process ended."""


class GangUndecided(GangFailure):
    """The deadline passed while the gang still did something."""


class FaultMissed(GangFailure):
    """All ranks returned, but a fault that was scheduled has not happened."""


# As pytest does with its own, so that a summary has the name alone.
for _class in (RanksRaised, RanksDiffer, GangHung, GangDied, GangUndecided, FaultMissed):
    _class.__module__ = "builtins"

_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_SKIPS = {"Skipped", "unittest.case.SkipTest"}


def check(outcomes: Sequence[Outcome], *, verbose: bool = False) -> list[Any]:
    """Give the values that all ranks returned, or end the test as they did.

    Args:
        outcomes: what `Gang.run` returned.
        verbose: show stacks with all frames of libraries.

    Raises:
        GangDied: a rank's process ended; whatever else happened, it is named first.
        GangHung: the gang stood still.
        GangUndecided: the deadline passed.
        RanksRaised: a rank raised.
        RanksDiffer: some ranks skipped, or called `pytest.xfail`, and others did not.
        FaultMissed: all returned, some before the point of a fault that was to befall them.
        pytest.skip.Exception: all ranks skipped. So with `pytest.xfail` and `pytest.exit`.
    """
    __tracebackhide__ = True
    _end_alike(outcomes)
    judged = verdict(outcomes)
    failure = _failure(outcomes, judged)
    if failure is not None:
        kind, headline = failure
        lines = [headline]
        # Where ranks raised, what they raised says it all, unless their records say more.
        if kind in (GangDied, GangHung, GangUndecided) or judged.word.endswith("mismatch"):
            lines.insert(0, judged.headline)
        if judged.faults:
            lines.insert(1, f"injected: {', '.join(judged.faults)}")
        if judged.missed and kind is not FaultMissed:
            lines.insert(2, f"not injected: {'; '.join(judged.missed)}")
        if kind is FaultMissed:
            lines.append("All ranks returned without it: the run says nothing of such a fault.")
        lines += _details(outcomes, judged, verbose=verbose)
        raise kind("\n".join(lines), outcomes)
    return [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]


def _sendable(text: str) -> str:
    """Write out what UTF-8 has no bytes for, such as half of a file's name: xdist stops there."""
    return text.encode(errors="backslashreplace").decode()


def all_raised(outcomes: Sequence[Outcome], kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether every rank raised one of these, or of what derives from them."""
    names = {qualified_name(kind) for kind in kinds}
    return all(isinstance(outcome, Raised) and names & {*outcome.mro} for outcome in outcomes)


def _end_alike(outcomes: Sequence[Outcome]) -> None:
    __tracebackhide__ = True
    raised = [outcome for outcome in outcomes if isinstance(outcome, Raised)]
    for outcome in raised:
        if outcome.type == "_pytest.outcomes.Exit":
            pytest.exit(_sendable(f"rank {outcome.rank}: {outcome.message}"))
    if len(raised) < len(outcomes):
        return
    reason = _sendable("; ".join(dict.fromkeys(outcome.message for outcome in raised)))
    kinds = {_ending(outcome) for outcome in raised}
    if kinds == {"skipped"}:
        raise pytest.skip.Exception(reason, _use_item_location=True)
    if kinds == {"failed as expected"}:
        pytest.xfail(reason)


def _ending(outcome: Outcome) -> str:
    if not isinstance(outcome, Raised):
        return "returned"
    if outcome.type in _SKIPS:
        return "skipped"
    return "failed as expected" if outcome.type == "_pytest.outcomes.XFailed" else "raised"


def _failure(outcomes: Sequence[Outcome], judged: Verdict) -> tuple[type[GangFailure], str] | None:
    first = _first_death(outcomes)
    if first is not None:
        return GangDied, first.describe()
    for outcome in outcomes:
        if isinstance(outcome, Hung):
            return GangHung, f"{outcome.why}, {outcome.elapsed_s:.1f} s after the start"
        if isinstance(outcome, Undecided):
            return GangUndecided, outcome.why
    raised = [outcome for outcome in outcomes if isinstance(outcome, Raised)]
    if not raised:
        return _missed(judged)
    endings = together((outcome.rank, _ending(outcome)) for outcome in outcomes)
    errors = [outcome for outcome in raised if _ending(outcome) == "raised"]
    if len(endings) > 1 and not errors:
        ways = "; ".join(f"{ranks_text(ranks)} {ending}" for ranks, ending in endings)
        return RanksDiffer, f"the ranks ended in different ways: {ways}"
    messages = together((outcome.rank, _headline(outcome)) for outcome in errors)
    ways = "; ".join(f"{ranks_text(ranks)} raised {text}" for ranks, text in messages[:3])
    more = f"; and {len(messages) - 3} more" if len(messages) > 3 else ""
    others = [(ranks, ending) for ranks, ending in endings if ending != "raised"]
    rest = "".join(f"; {ranks_text(ranks)} {ending}" for ranks, ending in others)
    return RanksRaised, ways + more + rest


def _first_death(outcomes: Sequence[Outcome]) -> Died | None:
    died = [outcome for outcome in outcomes if isinstance(outcome, Died)]
    return min(died, key=lambda died: (died.after is not None, died.elapsed_s), default=None)


def _missed(judged: Verdict) -> tuple[type[GangFailure], str] | None:
    if not judged.missed:
        return None
    return FaultMissed, f"not injected: {'; '.join(judged.missed)}"


def _headline(outcome: Raised) -> str:
    first = outcome.message.partition("\n")[0]
    return f"{outcome.type}: {first}" if first else outcome.type


def _details(outcomes: Sequence[Outcome], judged: Verdict, *, verbose: bool) -> list[str]:
    """One block for all ranks of which the same is to be told, causes first."""
    # A rank that has returned has nothing to say that the headline has not.
    told = [outcome for outcome in outcomes if not isinstance(outcome, Returned)]
    told.sort(key=_order)
    details = {outcome.rank: _detail(outcome, verbose=verbose) for outcome in told}
    first = _first_death(outcomes)
    if first is not None:  # the headline has told of it
        details[first.rank] = "", "\n".join(last_words(first.output))
        if not details[first.rank][1]:
            del details[first.rank]
    for rank in () if verbose else _followers(judged):
        if isinstance(outcome := outcomes[rank], Raised) and outcome.traceback:
            text = own_traceback(outcome.traceback.partition(PICTURE)[0]).rstrip()
            details[rank] = "", _ADDRESS.sub("0x...", text)
    lines = []
    for ranks, (title, _) in together(
        (rank, (t, _place(text))) for rank, (t, text) in details.items()
    ):
        texts = together((rank, details[rank][1]) for rank in ranks)
        seen = f", as {ranks_text(texts[0][0])} saw it" if len(texts) > 1 else ""
        lines += ["", f"----- {ranks_text(ranks)}{title}{seen} -----", texts[0][1]]
        for others, text in texts[1:]:
            lines += [f"... {ranks_text(others)}, at the same place:", _errors(text)]
    return lines


def _followers(judged: Verdict) -> set[int]:
    """Ranks that failed because of what another rank did, where that one has failed too."""
    if judged.first is None or judged.first.follows:
        return set()
    return {failure.rank for failure in judged.later if failure.follows}


def _place(text: str) -> str:
    """A picture of an error without the error: where it was raised, and by what calls."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("E  "))


def _errors(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith("E  "))


def _order(outcome: Outcome) -> tuple[int, float, int]:
    match outcome:
        case Died(after=None):
            return 0, outcome.elapsed_s, outcome.rank
        case Raised():  # what has a cause of its own, before those that were told of it
            return 1, float(CAUSED not in outcome.traceback), outcome.rank
        case Hung(stopped=True):
            return 2, 0.0, outcome.rank
        case Died():
            return 4, outcome.elapsed_s, outcome.rank
        case _:
            return 3, 0.0, outcome.rank


def _detail(outcome: Outcome, *, verbose: bool) -> tuple[str, str]:
    match outcome:
        case Raised():
            return "", _picture(outcome)
        case Hung() | Undecided():
            stopped = isinstance(outcome, Hung) and outcome.stopped
            title = ", stopped by a signal: stacks" if stopped else ": stacks"
            return title, readable(outcome.stacks, all_frames=verbose)
        case Died():
            return "", "\n".join([outcome.describe(), *last_words(outcome.output)])
        case _:
            return "", outcome.describe()


def _picture(outcome: Raised) -> str:
    if outcome.notes and outcome.notes[-1].startswith(PICTURE):
        text = outcome.notes[-1].removeprefix(PICTURE)
    else:
        # It was raised before the body began, or by a function that the parent has sent.
        text = without_harness(outcome.traceback).rstrip() or outcome.describe()
    # Where things are in memory differs from rank to rank.
    return _ADDRESS.sub("0x...", text)
