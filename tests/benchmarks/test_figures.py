"""Ratios and medians are computed right; nothing here is timed."""

from typing import Any

import pytest

from benchmarks.cells import Cell
from benchmarks.contestants import CONTESTANTS, taking_part
from benchmarks.figures import Spread, figures, ratio, rounds_of
from benchmarks.running import CellError, check_digests
from benchmarks.tables import cell_figures, markdown
from benchmarks.works import WORKS


def epoch(contestant: str, total_s: float, *, first_s: float = 0.1, wait_s: float = 0.0) -> object:
    return {
        "contestant": contestant,
        "batches": 11,
        "total_s": total_s,
        "first_s": first_s,
        "rest_s": total_s - first_s,
        "wait_s": wait_s,
        "peak_bytes": 2**20,
    }


def ranks(own: list[tuple[float, float]], other: list[tuple[float, float]]) -> list[dict[str, Any]]:
    """Two processes; a pair of seconds a round."""
    return [
        {
            "epochs": [
                epoch(name, pair[process])
                for name, pairs in (("jaxiter", own), ("ray", other))
                for pair in pairs
            ]
        }
        for process in range(2)
    ]


def test_a_spread_is_the_median_and_the_quartiles() -> None:
    """Five values give the third, the second and the fourth of them; one gives itself."""
    assert Spread.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)


def test_the_slowest_process_counts() -> None:
    """Of two processes that need 1.1 and 2.2 s for 11 batches, a batch takes 0.2 s."""
    rounds = rounds_of([rank["epochs"] for rank in ranks([(1.1, 2.2)], [(1, 1)])], "jaxiter")

    assert figures(rounds, 0).batch_us.median == pytest.approx(200_000)


def test_with_a_step_the_first_batch_is_apart() -> None:
    """Where there is a step, ten batches in 1 s after the first one take 0.1 s each."""
    rounds = rounds_of([rank["epochs"] for rank in ranks([(1.1, 1.1)], [(1, 1)])], "jaxiter")
    found = figures(rounds, 10)

    assert found.batch_us.median == pytest.approx(100_000)
    assert found.first_ms.median == pytest.approx(100)


def test_a_ratio_is_taken_in_each_round() -> None:
    """The median of the rounds' ratios is given, not the ratio of the medians."""
    all_ranks = ranks([(1, 1), (1, 1), (4, 4)], [(2, 2), (3, 3), (4, 4)])
    epochs = [rank["epochs"] for rank in all_ranks]
    own, other = rounds_of(epochs, "jaxiter"), rounds_of(epochs, "ray")

    assert ratio(own, other, 0).median == pytest.approx(2.0)
    assert ratio(other, own, 0).median == pytest.approx(0.5)


def test_a_table_has_a_row_a_contestant() -> None:
    """The table of a cell names its contestants, the machine and the command."""
    cell = Cell("dense", "memory", 2, 1, 0.0, 11)
    result = cell_figures(cell, ranks([(1, 1)], [(2, 2)]), ["jaxiter", "ray"])
    machine = {"cores": 2, "processor": "p", "mhz": 1, "governor": "g", "load_1_5_15_min": [0]}
    machine |= {"memory_free_gib": 1, "kernel": "k", "python": "3", "packages": {"jax": "0"}}
    text = markdown([(cell, result)], machine, "the command")

    assert "| jaxiter | 90909 [90909, 90909]" in text
    assert "2.00 [2.00, 2.00]" in text
    assert "`the command`" in text
    assert "2 cores of p" in text


def test_different_rows_are_an_error() -> None:
    """Contestants that deliver other rows are not compared; the error names them."""
    check_digests(0, [("hand", [[1.0], [2.0]]), ("ray", [[1.001], [2.0]])])

    with pytest.raises(CellError, match="ray and hand delivered different rows in batch 1"):
        check_digests(0, [("hand", [[1.0], [2.0]]), ("ray", [[1.0], [3.0]])])


def test_who_takes_part_follows_from_the_cell() -> None:
    """Who does not agree is left out of uneven shards, and the step alone where there is none."""
    uneven = taking_part(CONTESTANTS, "memory", True, True)
    without_step = taking_part(CONTESTANTS, "ray", False, False)

    assert uneven == ["ray", "ray-10", "jaxiter", "resident"]
    assert "resident" not in without_step
    assert {"bound", "hand", "jaxiter-off"} < set(without_step)
    assert "grain" not in without_step


def test_rows_differ_and_uneven_shards_lack_a_batch() -> None:
    """Each work's rows differ; of uneven shards the last has a batch less, all but 0 a tail."""
    cell = Cell("id", "memory", 3, 1, 0.0, 4, uneven=True)

    assert [cell.rows_of(process, 32) for process in range(3)] == [128, 129, 98]
    assert cell.delivered == 3
    for work in WORKS.values():
        (column, *_) = work.make(0, 2).values()
        assert (column[0] != column[1]).any()
