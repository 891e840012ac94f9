"""What decisions cost in the simulation."""

import pytest

from conformance.simulated import main
from conformance.simulated_cost import Service, cost


def test_messages_grow_in_proportion_to_the_ranks() -> None:
    """A decision is one report of each other rank, one write, and one read by each of them."""
    for ranks in (4, 16, 64):
        found = cost(ranks, Service(), decisions=50)

        assert found.decisions == 50
        assert found.sent == pytest.approx(ranks, rel=0.1)
        assert found.received == pytest.approx(2 * (ranks - 1), rel=0.1)


def test_latency_follows_the_service() -> None:
    """A decision takes two requests of each other rank, however long these are."""
    for request_s in (1e-3, 1e-5):
        service = Service(request_s, byte_s=0.0, latency_s=0.0)

        assert cost(64, service).latency_s == pytest.approx(2 * 64 * request_s, rel=0.1)


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each number of ranks."""
    status = main(["cost", "--ranks", "2", "8", "--decisions", "10"])

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert [line.split()[1] for line in lines[2:]] == ["2", "8"]
