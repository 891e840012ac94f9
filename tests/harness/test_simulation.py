"""Virtual time: order, delays, faults and counts of the simulation."""

import random

from harness.simulation import Drawn, Fault, Simulation
from tests.harness.toys import Toy


def _simulation(*programs: str, seed: int = 0, faults: tuple[Fault, ...] = ()) -> Simulation:
    source = random.Random(seed)
    return Simulation(
        [Toy(tuple(program.split("; "))) for program in programs],
        Drawn(source, 1.0),
        lambda rank, move, source: source.random(),  # noqa: ARG005
        source,
        faults=faults,
        record=True,
    )


def test_ranks_run_to_their_end_in_virtual_time() -> None:
    """All finish, and the clock has gone on by what moves and messages took."""
    simulation = _simulation("send 1; wait", "wait; send 0")

    assert simulation.run()
    assert simulation.all_finished
    assert 0 < simulation.now < 10


def test_a_deadlock_ends_the_run_and_is_told() -> None:
    """When nothing is left to happen, `stuck` says who stands where."""
    simulation = _simulation("wait; send 1", "wait; send 0")

    assert not simulation.run()
    assert simulation.stuck() == "rank 0: at 'wait'; rank 1: at 'wait'"


def test_the_same_seed_gives_the_same_trace() -> None:
    """All that is drawn comes from the seed."""
    programs = ("send 1; send 2; wait", "wait; send 0", "wait")
    traces = []
    for seed in (1, 1, 2):
        simulation = _simulation(*programs, seed=seed)
        simulation.run()
        traces.append(simulation.trace)

    assert traces[0] == traces[1]
    assert traces[0] != traces[2]


def test_messages_are_counted() -> None:
    """Messages and characters, as sent and as received."""
    simulation = _simulation("send 1; send 1", "wait; wait")
    simulation.run()

    traffic = simulation.traffic
    assert (traffic.sent, traffic.received) == (2, 2)
    assert (traffic.sent_chars, traffic.received_chars) == (2, 2)


def test_a_dead_rank_does_nothing_and_is_not_waited_for() -> None:
    """The others are what `run` reports on."""
    simulation = _simulation("wait", "send 0", faults=(Fault(1, "die", 0.0),))

    assert not simulation.run()
    assert simulation.alive == [True, False]
    assert simulation.stuck() == "rank 0: at 'wait'"


def test_a_stopped_rank_goes_on_later() -> None:
    """It makes its moves and hears its messages when its stop is over."""
    simulation = _simulation("wait", "send 0", faults=(Fault(1, "stop", 0.0, 100.0),))

    assert simulation.run()
    assert simulation.now >= 100.0
    assert min(when for when, rank, what in simulation.trace if what == "send 0") >= 100.0
