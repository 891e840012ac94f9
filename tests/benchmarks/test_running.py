"""Each contestant delivers the same rows; on real processes, with sizes that take no time."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.agreement import measure_agreement
from benchmarks.cells import Cell
from benchmarks.contestants import installed
from benchmarks.running import contestants_of, gangs


@pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
def test_contestants_deliver_the_same_rows(uneven: bool) -> None:
    """In memory each contestant delivers as many batches, of the same rows; a round is recorded."""
    cells = [Cell(work, "memory", 2, 2, 1.0, 4, uneven) for work in ("id", "cast")]
    cells.append(Cell("id", "frozen", 2, 2, 0.0, 4, uneven, launches=True))
    with gangs() as running:
        for cell in cells:
            names = contestants_of(cell, installed())
            ranks = running.run(cell, names, 1, 120.0)

            for rank in ranks:
                assert [epoch["contestant"] for epoch in rank["epochs"]] == names
                assert {epoch["batches"] for epoch in rank["epochs"]} == {cell.delivered}
                assert all(epoch["wait_s"] <= epoch["rest_s"] for epoch in rank["epochs"])


def test_the_command_writes_its_results(tmp_path: Path, capsys: Any) -> None:
    """One small run prints a table and writes it, as JSON and a picture too."""
    pytest.importorskip("matplotlib", reason="it is in the group `benchmarks` only")
    arguments = "--work id --contestants hand,jaxiter --step-ms 0 --batches 3 --rounds 2"
    status = main([*arguments.split(), "--processes", "1", "--write", str(tmp_path)])

    assert status == 0
    assert "| jaxiter |" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {
        "results.md",
        "results.json",
        "results.svg",
    }


def test_a_decision_is_measured_beside_its_primitives() -> None:
    """Both kinds of decision are timed in each round, and their ratio is given."""
    found = measure_agreement(2, rounds=2, decisions=5)

    assert found["ratio"]["low"] > 0
    assert found["bare_us"]["median"] > 0
