"""Subjects that users give."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.model import Case
from conformance.subjects import SubjectError, find


def test_a_callable_that_does_not_tell_its_arguments_is_asked_for_all() -> None:
    """It lacks none before it is called."""
    case = Case("even", ("COUNT-2",), options={"batch_size": 4})

    assert find("builtins:map").lacks(case) == ""


def test_a_module_that_exits_when_imported_is_no_subject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused in words, as one that raises is."""
    (tmp_path / "exits_when_imported.py").write_text("raise SystemExit(4)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SubjectError, match="exits_when_imported:f cannot be loaded"):
        find("exits_when_imported:f").load()


def always(source: object, *, batch_size: int = 256) -> list[object]:
    """A subject that cannot but synchronise."""
    return [source, batch_size]


def test_a_subject_that_always_synchronises_needs_no_argument_for_it() -> None:
    """Without the argument it is called without it; where it should be off, it cannot be run."""
    subject = find(f"{__name__}:always")
    on = Case("even", ("COUNT-1",), options={"batch_size": 4})
    off = Case("off", ("SYNC-1",), options={"batch_size": 4}, synchronize=False)

    assert subject.lacks(on) == ""
    assert subject.given(on.options_of(0)) == {"batch_size": 4}
    assert subject.lacks(off) == "synchronize_batches"
    assert find("reference").given(on.options_of(0))["synchronize_batches"] is True
