"""The page for implementers does what it says, and so do the implementations made from it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from conformance.clauses import clauses
from tests.conformance.running import started

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS.joinpath("implementers.md").read_text(encoding="utf-8")
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("upstream/*.md")])


def test_the_example_of_the_page_is_a_subject(tmp_path: Path) -> None:
    """Its ten lines pass where shards are even, and hang where one is longer, as the page shows."""
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "mine.py").write_text(example, encoding="utf-8")
    assert example.count("\n") <= 10
    chosen = "even-neither or skew-1-first-neither"
    arguments = ("conformance/test_count.py", "-k", chosen, "--subject", "mine:iter_jax_batches")
    with started(
        tmp_path, *arguments, "--processes", "2", "--devices", "1", "--sources", "memory"
    ) as run:
        ended = run.wait()

    assert {i: c["verdict"] for i, c in ended.clauses.items()} == {
        "COUNT-1": "pass",
        "COUNT-4": "hang",
    }
    shown = re.search(r"^COUNT-4 HANG.*?(?=^  again)", PAGE, re.DOTALL | re.MULTILINE)
    assert shown is not None
    assert shown[0].strip() in ended.output.replace("...", "")


def test_the_page_speaks_of_every_group_of_clauses() -> None:
    """No group of SPEC.md lacks a row that says how it is checked."""
    table = "\n".join(re.findall(r"^\| ([A-Z][A-Z, ]+) \| \[test_", PAGE, re.MULTILINE))

    assert {i.partition("-")[0] for i in clauses()} == set(re.findall(r"[A-Z]+", table))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    """A link to a file of this repository names one that there is, and a heading that it has."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}
            assert anchor in slugs, target


def _implementation(name: str) -> Callable[..., Any]:
    if name == "on_grain":
        pytest.importorskip("grain", reason="needs the dependency group grain")
    module = importlib.import_module(f"examples.implementations.{name}")
    return module.iter_jax_batches  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["by_hand", "on_grain"])
def test_an_implementation_delivers_rows_in_batches(name: str) -> None:
    """Pieces of any size become batches of the size that was asked for, and a shorter tail."""
    n = jax.local_device_count()  # a batch and its tail must divide by it
    ids, x = np.arange(5 * n, dtype=np.int32), np.ones((5 * n, 2), np.float32)
    source = [{"id": ids[a:b], "x": x[a:b]} for a, b in ((0, 1), (1, 1), (1, 5 * n))]
    batches = list(_implementation(name)(source, batch_size=2 * n))

    assert [b["id"].tolist() for b in batches] == [
        ids[a:b].tolist() for a, b in ((0, 2 * n), (2 * n, 4 * n), (4 * n, 5 * n))
    ]
    assert [b["x"].shape for b in batches] == [(2 * n, 2), (2 * n, 2), (n, 2)]
