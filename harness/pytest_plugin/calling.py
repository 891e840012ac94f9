"""From a test to what travels: its body by name, its instance and fixtures by value."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest

from harness import travel
from harness.gang import Gang
from harness.outcome import Outcome
from harness.pytest_plugin import on_rank
from harness.pytest_plugin.arriving import arrival

#: Fixtures that do their work on the parent's side alone.
_PARENT_ONLY = {
    "request": "",
    "capsys": "its output is in the report",
    "capfd": "its output is in the report",
    "capsysbinary": "its output is in the report",
    "capfdbinary": "its output is in the report",
    "caplog": "attach a handler to the logger in the body",
    "recwarn": "use pytest.warns in the body",
    "pytester": "",
    "benchmark": "",
    "subtests": "",
}


class TravelError(Exception):
    """Something that the body takes cannot travel to the ranks."""


def run_on_ranks(item: pytest.Function, gang: Gang) -> list[Outcome]:
    """Run the body of a test on every rank of its gang.

    Raises:
        TravelError: a fixture's value, or the test's instance, cannot be sent.
    """
    names: tuple[str, ...] = item._fixtureinfo.argnames
    arguments = {name: _argument(name, item.funcargs[name]) for name in names}
    target = on_rank.Target(item.module.__name__, item.originalname)
    instance = None if item.cls is None else item.instance
    here = arrival(item, at_once=True)
    # The filters that pytest has set for this test, its marks included.
    values = (here, target, instance, arguments, list(warnings.filters), _style(item.config))
    try:
        return gang.run(on_rank.run_body, *values)
    except TypeError as error:
        raise _travel_error(instance, arguments) or error from None


def check_body(item: pytest.Function) -> None:
    """Raise TravelError for a body that cannot run on ranks, whatever its arguments are."""
    function = item.function
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TravelError(
            f"{item.originalname} is async, and ranks have no event loop: "
            "make it a plain function, and call asyncio.run(...) in it"
        )


def _argument(name: str, value: object) -> object:
    if name in _PARENT_ONLY:
        hint = _PARENT_ONLY[name]
        raise TravelError(
            f"fixture {name!r} works in the parent alone, and this body runs on the ranks"
            + (f": {hint}" if hint else "")
            + ". Or take the fixture `gang`: then the body runs in the parent"
        )
    return on_rank.monkeypatch() if isinstance(value, pytest.MonkeyPatch) else value


def _travel_error(instance: object, arguments: dict[str, object]) -> TravelError | None:
    for name, value in arguments.items():
        if why := _why_not(value):
            return TravelError(
                f"fixture {name!r} cannot travel to the ranks: a {type(value).__name__}, {why}. "
                "Make it in the body, or take the fixture `gang` and run in the parent"
            )
    if instance is not None:
        for name, value in vars(instance).items():
            if why := _why_not(value):
                return TravelError(
                    f"self.{name} cannot travel to the ranks: a {type(value).__name__}, {why}. "
                    "Make it in the body, or as a fixture that can be pickled"
                )
        if why := _why_not(instance):
            return TravelError(f"self cannot travel to the ranks: {why}")
    return None


def _why_not(value: object) -> str:
    try:
        travel.dumps(value)
    except Exception as error:  # noqa: BLE001 - pickling runs code of any class
        return f"{type(error).__name__}: {error}"
    return ""


def _style(config: pytest.Config) -> on_rank.Style:
    option: Any = config.option
    return on_rank.Style(option.tbstyle, bool(option.showlocals), max(0, option.verbose))
