"""Short forms of the campaign and the soak, and how whole programs end."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness import Gang, Returned
from tests.jaxiter import campaign, soak

ROOT = Path(__file__).parents[2]
SEED = 20_261


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_a_short_campaign(processes: int) -> None:
    """Random scenarios: no hang, no one-sided error, no lost or repeated row."""
    seeds = range(SEED * processes, SEED * processes + 15)
    failed = campaign.run(seeds, processes)

    assert not failed


def test_a_campaign_notices_a_lost_row() -> None:
    """The checks bite: a scenario whose source loses a row is reported."""
    scenario = campaign.Scenario(
        0, 1, [[4, 4]], {"batch_size": 4, "drop_last": True}, "none", 0, 0, 0, 1
    )
    with Gang(processes=1, devices_per_process=2) as gang:
        outcomes = gang.run(campaign.play, per_rank=[(scenario,)], deadline_s=60.0)
    assert campaign.problems(scenario, outcomes) == []
    scenario.sizes = [[4, 4, 4]]
    assert "2 batches, expected 3" in campaign.problems(scenario, outcomes)[0]
    (outcome,) = outcomes
    assert isinstance(outcome, Returned)
    outcome.value[0].rows[0][1] = 2

    assert any("rows lost" in text for text in campaign.problems(scenario, outcomes))


def test_a_short_soak() -> None:
    """Memory, threads and keys stay flat over 2,000 batches in 8 epochs."""
    with Gang(processes=2, devices_per_process=1) as gang:
        for readings in soak.run(gang, 2_000, 8, 40):
            megabytes, _, threads, descriptors = soak.growth(readings)

            assert megabytes < 16
            assert threads <= 0
            assert descriptors <= 2
            assert max(reading.keys for reading in readings) <= soak.MOST_KEYS


@pytest.mark.parametrize("leaver", [0, 1])
@pytest.mark.parametrize("how", ["exit", "raise", "shutdown"])
def test_a_program_that_ends_early_tells_the_others(how: str, leaver: int) -> None:
    """A process that exits, raises or shuts JAX down in its loop ends the other's loop too."""
    with tempfile.TemporaryDirectory(prefix="jx") as directory:
        ranks = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.jaxiter.leaving",
                    str(rank),
                    f"{directory}/s",
                    how + str(leaver),
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            said = [rank.communicate(timeout=90) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()

    other = 1 - leaver
    assert f"PeerLeftError: process {leaver} left its loop after 4 batches" in said[other][0]
    assert "done" in said[other][0]
    assert [rank.returncode for rank in ranks][other] == 0
    assert ranks[leaver].returncode == (1 if how == "raise" else 0), said[leaver][1]
    assert ("a bug in the step" in said[leaver][1]) == (how == "raise")
