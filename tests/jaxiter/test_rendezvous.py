"""The transport: numbered messages in a key-value store, and keys that do not pile up."""

import threading
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from jaxiter import RendezvousError, rendezvous
from jaxiter.rendezvous import Board, CoordinationService, MemoryStore


def boards(store: MemoryStore, processes: int) -> list[Board]:
    return [Board(store, "jaxiter/a/0.0", p, processes) for p in range(processes)]


def test_messages_arrive_in_order() -> None:
    """Reports and decisions arrive once each, in the order in which they were sent."""
    zero, one = boards(MemoryStore(), 2)
    for number in range(5):
        one.send_report(f"r{number}")
        zero.announce(f"d{number}")

    assert [zero.next_report(1, 0.0) for _ in range(6)] == ["r0", "r1", "r2", "r3", "r4", None]
    assert [one.next_decision(0.0) for _ in range(6)] == ["d0", "d1", "d2", "d3", "d4", None]


def test_a_listing_gives_all_new_reports() -> None:
    """A listing gives the reports that came since, of each process in order, once."""
    zero, one, two = boards(MemoryStore(), 3)
    for number in range(3):
        one.send_report(f"r{number}")
    two.send_report("t0")

    assert zero.new_reports() == {1: ["r0", "r1", "r2"], 2: ["t0"]}
    assert zero.new_reports() == {}
    one.send_report("r3")
    assert zero.next_report(1, 0.0) == "r3"


def test_a_wait_ends_when_the_message_comes() -> None:
    """A receiver that waits is woken by the message."""
    zero, one = boards(MemoryStore(), 2)
    thread = threading.Thread(target=one.send_report, args=("late",))
    thread.start()

    assert zero.next_report(1, 30.0) == "late"
    thread.join()


@pytest.mark.parametrize("processes", [2, 5, 70])
def test_keys_stay_few(processes: int) -> None:
    """However many messages, the number of keys is bounded, and none is left at the end."""
    store = MemoryStore()
    zero, *others = boards(store, processes)
    most = 0
    for number in range(500):
        for process, board in enumerate(others, 1):
            board.send_report("r")
            assert zero.next_report(process, 0.0) == "r"
        zero.announce("d", seen_by_all=number)
        for board in others:
            assert board.next_decision(0.0) == "d"
        most = max(most, len(store.list("jaxiter")))

    assert most <= 64 + 64 + 4 * processes
    for board in (zero, *others):
        board.leave()
    assert not store.list("jaxiter")


def test_a_late_process_reads_all_decisions() -> None:
    """While a process has not come, no decision is deleted: it can read them from the first."""
    zero, one = boards(MemoryStore(), 2)
    for number in range(100):
        zero.announce(f"d{number}", seen_by_all=0)

    assert [one.next_decision(0.0) for _ in range(100)] == [f"d{n}" for n in range(100)]


class Client:
    """A client of the coordination service whose calls all raise."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any) -> None:
            raise RuntimeError(self._message)

        return call


def test_a_lost_service_is_said_to_be_lost() -> None:
    """Errors of the service become RendezvousError, which says who hosts it."""
    store = CoordinationService(Client("UNAVAILABLE: socket closed"))

    for call in (
        lambda: store.set("k", "v"),
        lambda: store.get("k", 0.1),
        lambda: store.list("k"),
        lambda: store.delete("k"),
        lambda: store.count("k"),
    ):
        with pytest.raises(RendezvousError, match="process 0, which hosts it"):
            call()


def test_a_get_that_is_not_answered_in_time_is_none() -> None:
    """The service's time-out is no error, nor is a key that exists already."""
    assert CoordinationService(Client("DEADLINE_EXCEEDED: timed out")).get("k", 0.1) is None
    assert CoordinationService(Client("ALREADY_EXISTS: k")).set("k", "v") is False


def test_a_client_that_jax_changed_is_reported() -> None:
    """When JAX's client lacks what is needed, the error names it and JAX's version."""
    with pytest.raises(RendezvousError, match="lacks key_value_set") as caught:
        CoordinationService(SimpleNamespace())

    assert jax.__version__ in str(caught.value)
    assert "synchronize_batches=False" in str(caught.value)


def test_a_service_that_jax_moved_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """When JAX's service is not where it was, the error says so."""
    from jax._src import distributed

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(distributed, "global_state", SimpleNamespace())
    with pytest.raises(RendezvousError, match="does not have its coordination service"):
        rendezvous.service()


def test_several_processes_without_a_service_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes without jax.distributed.initialize() are told to call it."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)

    with pytest.raises(RendezvousError, match=r"jax\.distributed\.initialize"):
        rendezvous.service()


def test_one_process_needs_none() -> None:
    """One process has no service, and needs none."""
    assert rendezvous.service() is None
