"""Runs the body of one test on a rank, and shows its error as pytest would."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from _pytest._io import TerminalWriter
from _pytest.assertion import util
from _pytest.config import _prepareconfig

from harness import rank

#: Starts the note of an error that is pytest's picture of it.
PICTURE = "\0picture\n"
_LONGEST_EXPLANATION_LINES = 20


class OnRank:
    """Stands in the parent for a value that each rank makes for itself."""

    def __init__(self, name: str, make: Callable[[], object]) -> None:
        self._name = name
        self._make = make

    def __reduce__(self) -> tuple[Any, ...]:
        """Be the rank's own value after unpickling."""
        return self._make, ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"fixture {self._name!r} has its value on the ranks alone: .{name} is not known here, "
            "in the parent. Use it in the body of a test that runs on the ranks"
        )

    def __repr__(self) -> str:
        return f"<fixture {self._name!r} of each rank>"


@dataclass(frozen=True)
class Target:
    """Which function is the body: in a module, or on a test class's instance, under a name."""

    module: str
    name: str

    def find(self, instance: object) -> Callable[..., object]:
        """Find it; on `instance`, where there is one."""
        owner: Any = sys.modules[self.module] if instance is None else instance
        return getattr(owner, self.name)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Style:
    """How errors are shown, in the words of pytest's options."""

    tb: str
    show_locals: bool
    verbosity: int


def run_body(
    _arrival: None,
    target: Target,
    instance: object,
    arguments: Mapping[str, object],
    filters: Sequence[Any],
    style: Style,
) -> str | None:
    """Call the body; the name of what it returned instead of nothing.

    An error goes on with a note that is pytest's picture of it.
    """
    __tracebackhide__ = True
    with warnings.catch_warnings(), _explaining(style):
        warnings.filters[:] = list(filters)  # type: ignore[index]
        try:
            result = target.find(instance)(**arguments)
        except BaseException as error:
            with contextlib.suppress(Exception):
                error.add_note(PICTURE + _picture(error, style))
            raise
        finally:
            for value in arguments.values():
                if isinstance(value, pytest.MonkeyPatch):
                    value.undo()
    return None if result is None else type(result).__name__


def _picture(error: BaseException, style: Style) -> str:
    if style.tb == "no":
        return ""
    excinfo = pytest.ExceptionInfo.from_exception(error)
    if isinstance(error, pytest.fail.Exception) and not error.pytrace:
        return f"Failed: {error.msg}"
    kind: Any = {"auto": "long", "line": "short"}.get(style.tb, style.tb)
    tbfilter: Any = _middle_short if style.tb == "auto" else True
    picture = excinfo.getrepr(style=kind, showlocals=style.show_locals, tbfilter=tbfilter)
    # Its own text would lose the indentation of the first line.
    text = io.StringIO()
    picture.toterminal(TerminalWriter(text))
    return text.getvalue().strip("\n")


def _middle_short(excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
    frames = excinfo.traceback.filter(excinfo)
    if not frames:
        return excinfo.traceback
    last = len(frames) - 1
    return type(frames)(
        frame if k in (0, last) else frame.with_repr_style("short")
        for k, frame in enumerate(frames)
    )


@contextlib.contextmanager
def _explaining(style: Style) -> Iterator[None]:
    """Let rewritten asserts explain comparisons, as pytest does in its own process."""
    config = _config(style.verbosity)

    def explain(op: str, left: object, right: object) -> str | None:
        for lines in config.hook.pytest_assertrepr_compare(
            config=config, op=op, left=left, right=right
        ):
            if explanation := list(lines or ()):
                return "\n~".join(_cut(explanation, style.verbosity)).replace("%", "%%")
        return None

    before = util._reprcompare, util._config
    util._reprcompare, util._config = explain, config
    try:
        yield
    finally:
        util._reprcompare, util._config = before


def _cut(explanation: Sequence[str], verbosity: int) -> list[str]:
    lines = [line.replace("\n", "\\n") for line in explanation]
    more = len(lines) - _LONGEST_EXPLANATION_LINES
    if verbosity >= 2 or more <= 0:
        return lines
    return [*lines[:_LONGEST_EXPLANATION_LINES], f"... {more} more lines, use '-vv' to show"]


_configs: dict[int, pytest.Config] = {}


def _config(verbosity: int) -> pytest.Config:
    if verbosity not in _configs:
        # Neither ini files, nor conftest.py, nor other plugins: it only explains comparisons.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
                patch.delenv(name, raising=False)
            # Captures nothing: what ranks write is taken from outside.
            options = ["-c", os.devnull, "--rootdir", os.getcwd(), "--noconftest", "--assert=plain"]
            options += ["-p", "no:cacheprovider", "--capture=no", *(["-v"] * verbosity)]
            _configs[verbosity] = _prepareconfig(options)
    return _configs[verbosity]


def this() -> OnRank:
    """Stand for `harness.rank.this()` of each rank."""
    return OnRank("this", rank.this)


def monkeypatch() -> OnRank:
    """Stand for a `monkeypatch` of each rank, undone after the body."""
    return OnRank("monkeypatch", pytest.MonkeyPatch)
