"""The drafts of upstream reports: each has its parts, and a reproduction that can be pasted."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

UPSTREAM = Path(__file__).parents[2] / "docs" / "upstream"
REPORTS = sorted(p for p in UPSTREAM.glob("*.md") if p.name != "README.md")
REPRODUCTIONS = sorted(UPSTREAM.glob("repro/*.py"))
PARTS = ("Versions", "What happens", "What is expected", "Reproduction", "Cause", "Suggested fix")
#: What a reproduction may import beside Python's own.
ALLOWED = {"jax", "numpy", "pyarrow", "ray"}


@pytest.mark.parametrize("report", REPORTS, ids=lambda p: p.stem)
def test_a_report_has_every_part_and_its_reproduction(report: Path) -> None:
    """A title, every part, the reproduction as its file has it, the output; a row in the index."""
    text = report.read_text(encoding="utf-8")
    code = UPSTREAM.joinpath("repro", f"{report.stem}.py").read_text(encoding="utf-8")

    assert text.startswith("# ")
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == PARTS
    assert f"```python\n{code}```" in text
    assert re.search(r"^It prints.*:\n\n```\n[\s\S]+?\n```$", text, re.MULTILINE)
    assert f"]({report.name})" in UPSTREAM.joinpath("README.md").read_text(encoding="utf-8")


def test_every_reproduction_has_a_report() -> None:
    """No reproduction stands alone."""
    assert [p.stem for p in REPRODUCTIONS] == [p.stem for p in REPORTS]


@pytest.mark.parametrize("path", REPRODUCTIONS, ids=lambda p: p.stem)
def test_a_reproduction_is_short_and_needs_only_ray_and_jax(path: Path) -> None:
    """Fewer than 40 lines, which compile, and import nothing of this project."""
    code = path.read_text(encoding="utf-8")
    imported = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])

    assert code.count("\n") < 40
    assert imported - ALLOWED <= sys.stdlib_module_names


def test_the_cheapest_reproduction_prints_what_its_report_says() -> None:
    """It needs no cluster, and holds Ray's thread up between two lines: seconds, and no race."""
    report = UPSTREAM.joinpath("lost_wake_up.md").read_text(encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(UPSTREAM / "repro" / "lost_wake_up.py")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )

    assert ran.stdout
    assert f"```\n{ran.stdout}```" in report
