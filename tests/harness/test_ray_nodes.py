"""Ranks on several nodes of a running cluster, which the parent can neither signal nor look at."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import ray
from ray.cluster_utils import Cluster

from harness import Died, Gang, Hung, Raised, Returned
from harness.backends.ray_actors import RayBackend
from tests.harness import cases
from tests.harness.conftest import is_alive, wait_until

STALL_S = 2.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """Two nodes of one CPU each; this process is connected to the first."""
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def spread(nodes: Cluster) -> Iterator[Gang]:
    """Two ranks, one a node."""
    backend = RayBackend(nodes.address, actor_options={"num_cpus": 1})
    with Gang(processes=2, devices_per_process=1, backend=backend) as gang:
        yield gang


def where() -> tuple[str, int]:
    """Return the node's id and the process's."""
    return ray.get_runtime_context().get_node_id(), os.getpid()


def test_ranks_on_two_nodes_share_one_jax_session(spread: Gang) -> None:
    """The ranks are on different nodes, and a collective runs."""
    places = [o.value for o in spread.run(where) if isinstance(o, Returned)]
    outcomes = spread.run(cases.gather)

    assert len({node for node, _ in places}) == 2
    assert [o.value for o in outcomes if isinstance(o, Returned)] == [[0, 1], [0, 1]]


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_stopped_rank_of_any_node_is_named(spread: Gang, culprit: int) -> None:
    """Stacks and records come from the node, and the stopped process is ended there."""
    places = [o.value for o in spread.run(where) if isinstance(o, Returned)]
    outcomes = spread.run(cases.culprit_then_gather, culprit, "SIGSTOP", stall_s=STALL_S)

    for outcome in outcomes:
        assert isinstance(outcome, Hung)
        assert outcome.stopped == (outcome.rank == culprit)
        assert outcome.why.startswith(f"rank {culprit} is stopped (SIGSTOP) after event #1")
        assert "in culprit_then_gather" in outcome.stacks
    assert wait_until(lambda: not any(is_alive(pid) for _, pid in places), 10)


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_dead_rank_of_any_node_keeps_its_record_and_output(spread: Gang, culprit: int) -> None:
    """What a rank has recorded and printed before it was killed is read on its node."""
    outcomes = spread.run(_print_and_die, culprit, stall_s=STALL_S)

    dead = outcomes[culprit]
    assert isinstance(dead, Died)
    assert [event.kind for event in dead.events] == ["last"]
    assert dead.output == "last words\n"


def _print_and_die(culprit: int) -> None:
    from harness import rank

    if rank.this().rank != culprit:
        cases.sleep_for_ever()
    print("last words", flush=True)
    rank.record("last")
    cases.FAULTS["SIGKILL"]()


def test_a_hang_across_nodes_says_who_waits_for_whom(spread: Gang) -> None:
    """One raised on its node, the other waits in a collective on another."""
    outcomes = spread.run(cases.culprit_then_gather, 1, "raise", stall_s=STALL_S)

    assert isinstance(outcomes[1], Raised)
    assert isinstance(outcomes[0], Hung)
    assert outcomes[0].why.startswith("rank 1 raised ValueError after event #1 'batch' (k=1)")
    assert "rank 0 waits in a collective" in outcomes[0].why
