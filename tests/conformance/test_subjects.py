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
