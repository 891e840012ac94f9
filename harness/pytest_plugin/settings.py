"""What a session sets for all its gangs: command line over environment over ini file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import pytest


def whole_number(text: str) -> int:
    """Read a whole number of 1 or more."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def seconds(text: str) -> float:
    """Read a number of seconds, more than 0."""
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError
    return number


@dataclass(frozen=True)
class Settings:
    """Values for tests whose marker does not say otherwise.

    Attributes:
        processes: number of ranks.
        devices: CPU devices of each rank.
        backend: "local", "ray", or what else `Gang` takes by name.
        deadline_s: seconds after which a rank that has not ended is undecided.
        stall_s: seconds without progress that make a hang; the backend's default where `None`.
        max_processes: ranks that may live at once, on all workers together; `None` leaves it to
            the number of cores, or to the largest gang that a test asks for.
        sources: where each value that is not the default comes from, by its name.
    """

    processes: int
    devices: int
    backend: str
    deadline_s: float
    stall_s: float | None
    max_processes: int | None
    sources: dict[str, str]


@dataclass(frozen=True)
class _Option:
    read: Callable[[str], Any]
    what: str
    default: Any
    help: str


_NUMBER, _SECONDS, _NAME = "a whole number of 1 or more", "seconds, more than 0", "a name"
_OPTIONS = {
    "processes": _Option(whole_number, _NUMBER, 2, "ranks of a gang"),
    "devices": _Option(whole_number, _NUMBER, 1, "CPU devices of each rank"),
    "backend": _Option(str, _NAME, "local", "what starts the ranks: local, ray, ..."),
    "deadline_s": _Option(
        seconds, _SECONDS, 60.0, "seconds after which a rank that has not ended is undecided"
    ),
    "stall_s": _Option(
        seconds, _SECONDS, None, "seconds without progress that make a hang (default: backend's)"
    ),
    "max_processes": _Option(
        whole_number,
        _NUMBER,
        None,
        "ranks that may live at once, on all workers together (default: 4 a core, 8 at least)",
    ),
}


def add_options(parser: pytest.Parser) -> None:
    """Declare `--gang-X`, and `gang_X` of ini files, for each setting."""
    group = parser.getgroup("gang", "tests that run on several JAX processes")
    for name, option in _OPTIONS.items():
        shown = "" if option.default is None else f" (default: {option.default})"
        group.addoption(
            _flag(name), dest=f"gang_{name}", metavar=name.upper(), help=option.help + shown
        )
        parser.addini(f"gang_{name}", option.help + shown, default=None)


def read_settings(config: pytest.Config) -> Settings:
    """Take each setting from where it is given first.

    Raises:
        pytest.UsageError: a value cannot be used; the text names where it was given.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, option in _OPTIONS.items():
        given = {
            _flag(name): config.getoption(f"gang_{name}"),
            _variable(name): os.environ.get(_variable(name)),
            f"gang_{name} of the ini file": config.getini(f"gang_{name}"),
        }
        values[name] = option.default
        for source, text in given.items():
            if text not in (None, ""):
                values[name], sources[name] = _read(source, option, str(text)), source
                break
    return Settings(**values, sources=sources)


def _read(source: str, option: _Option, text: str) -> Any:
    try:
        return option.read(text)
    except ValueError:
        raise pytest.UsageError(f"{source} must be {option.what}, not {text!r}") from None


def _flag(name: str) -> str:
    return f"--gang-{name.replace('_', '-')}"


def _variable(name: str) -> str:
    return f"PYTEST_GANG_{name.upper()}"


def describe(settings: Settings) -> str:
    """Say all values in one line, and whence those that are not the defaults."""
    unset = {
        "stall_s": "the backend's",
        "max_processes": f"{default_max_processes()} or the largest gang's",
    }
    words = []
    for field in fields(settings):
        if field.name == "sources":
            continue
        value = getattr(settings, field.name)
        text = unset[field.name] if value is None else str(value)
        source = settings.sources.get(field.name)
        words.append(f"{field.name}={text}" + (f" ({source})" if source else ""))
    return f"gang: {', '.join(words)}"


def default_max_processes() -> int:
    """How many ranks may live at once where nobody says: most of them wait."""
    return max(8, 4 * (os.cpu_count() or 1))
