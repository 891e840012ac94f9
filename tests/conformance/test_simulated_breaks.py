"""Faults put into the protocol are found, with a schedule that shows them."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.simulated import explore, told
from conformance.simulated_cases import Case
from conformance.simulated_engine import SimulatedEngine
from jaxiter import agreement, deciding
from jaxiter.agreement import Standing, Terms, Verdict
from jaxiter.engine import Engine
from jaxiter.messages import Decision
from jaxiter.protocol import Machine

Break = Callable[[pytest.MonkeyPatch], None]


def _maximum(patch: pytest.MonkeyPatch) -> None:
    """Decide by the maximum of what is held, not the minimum."""

    def progress(terms: Terms, standings: list[Standing]) -> Any:  # noqa: ARG001
        upto = max(standing.held for standing in standings)
        if all(standing.ended for standing in standings):
            return upto, agreement._Stop(upto, -1, agreement.Final()), ()
        return upto, None, ()

    patch.setitem(agreement._PROGRESS, "drop", progress)


def _forgotten_close(patch: pytest.MonkeyPatch) -> None:
    """A consumer that leaves does not say so."""
    patch.setattr(Machine, "left", lambda self: None)  # noqa: ARG005  # it replaces a method


def _waits_for_report(patch: pytest.MonkeyPatch) -> None:
    """A failure is not decided before each other source has ended."""
    decide = agreement.decide

    def patient(terms: Terms, standings: list[Standing], *rest: Any, **more: Any) -> Verdict:
        verdict = decide(terms, standings, *rest, **more)
        failed = verdict.final is not None and verdict.final.error is not None
        if failed and not all(s.ended or s.error is not None for s in standings):
            return Verdict(verdict.upto, None, ())
        return verdict

    patch.setattr(deciding, "decide", patient)


def _lost_wake_up(patch: pytest.MonkeyPatch) -> None:
    """The end does not wake a consumer that waits."""

    def poll(self: SimulatedEngine) -> None:
        rung = self.ready.rung
        Engine.poll(self)
        if self.machine.final is not None:
            self.ready.rung = rung

    patch.setattr(SimulatedEngine, "poll", poll)


def _one_more(patch: pytest.MonkeyPatch) -> None:
    """A process that learns of an error delivers one more batch that it holds."""

    def miscount(machine: Machine) -> None:
        if machine._held > machine._granted:
            machine._granted += 1

    _after_an_error(patch, miscount)


def _one_less(patch: pytest.MonkeyPatch) -> None:
    """A process that learns of an error leaves out the last batch that was decided."""

    def miscount(machine: Machine) -> None:
        if machine.placed < machine._granted:
            machine._granted -= 1

    _after_an_error(patch, miscount)


def _after_an_error(patch: pytest.MonkeyPatch, miscount: Callable[[Machine], None]) -> None:
    """Have every process but 0 miscount once it has learnt of an error."""
    apply = Machine._apply

    def patched(self: Machine, decision: Decision, now: float) -> None:
        apply(self, decision, now)
        failed = decision.final is not None and decision.final.error is not None
        if failed and self._process:
            miscount(self)

    patch.setattr(Machine, "_apply", patched)


BREAKS: dict[str, tuple[Break, Case, str]] = {
    "maximum": (_maximum, Case(), "batch 0 is delivered, and not held"),
    "forgotten close": (_forgotten_close, Case(fault="leave"), "not finished: rank 0"),
    "waits for a report": (
        _waits_for_report,
        Case(fault="fail", batches=3, ends="equal"),
        "not finished: rank 0",
    ),
    "lost wake-up": (_lost_wake_up, Case(), "not finished: rank"),
    "one more": (_one_more, Case(fault="stop"), "counts differ: {0: 0, 1: 1}, of which 0"),
    "one less": (
        _one_less,
        Case(fault="unplaced", batches=2, at=0),
        "counts differ: {0: 1, 1: 1}, of which 2 were due to rank 1",
    ),
}


@pytest.mark.parametrize("how", ["states", "fold", "parts"])
@pytest.mark.parametrize("name", BREAKS)
def test_a_fault_of_the_protocol_is_found(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exploration says what is wrong, and its schedule shows it again."""
    breaks, case, words = BREAKS[name]
    breaks(monkeypatch)

    said, found = explore(case, fold=how == "fold", parts=how == "parts")

    assert words in found.wrong, said
    assert found.schedule
    assert told(case.exploration(), found.schedule)[-1].strip() == found.wrong
    assert all(event in said for event in found.schedule)


@pytest.mark.parametrize("name", BREAKS)
def test_no_shorter_schedule_shows_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every state that fewer events lead to is right, commuting ones in any order."""
    breaks, case, _ = BREAKS[name]
    breaks(monkeypatch)
    found = explore(case)[1]

    shorter = case.exploration().run(most_steps_deep=len(found.schedule) - 1)

    assert not shorter.wrong
