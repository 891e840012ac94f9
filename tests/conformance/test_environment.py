"""What a report says of where a run took place."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    **{
        f"GIT_{who}_{what}": "some@one"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    },
}


def _run(copy: Path, *words: str) -> str:
    environment = {**_ENVIRONMENT, "GIT_CEILING_DIRECTORIES": str(copy.parent)}
    ended = subprocess.run(
        words, cwd=copy, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return ended.stdout.strip()


def _commit_of(copy: Path) -> str:
    program = "from conformance.environment import commit; print(commit())"
    return _run(copy, sys.executable, "-c", program)


def test_a_report_names_the_commit_and_whether_files_differ(tmp_path: Path) -> None:
    """What a verdict rests on can be found again, or is said to be nobody's commit."""
    package = tmp_path / "conformance"
    package.mkdir()
    for name in ("__init__.py", "environment.py", "model.py"):
        shutil.copy(ROOT / "conformance" / name, package / name)
    outside = _commit_of(tmp_path)
    _run(tmp_path, "git", "init", "-q")
    _run(tmp_path, "git", "add", ".")
    _run(tmp_path, "git", "commit", "-q", "-m", "All")
    head = _run(tmp_path, "git", "rev-parse", "--short=12", "HEAD")
    clean = _commit_of(tmp_path)
    with (package / "model.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    changed = _commit_of(tmp_path)

    assert outside == "no commit that git could tell"
    assert clean == f"commit {head}"
    assert changed == f"commit {head} and changes"
