"""What one decision costs beside the primitives it is made of, in the same run, in turns."""

import time
from collections.abc import Callable
from typing import Any

import jax

from benchmarks.figures import Spread
from harness import Gang, Returned, rank
from jaxiter.agreement import Terms
from jaxiter.deciding import Timing
from jaxiter.engine import Engine
from jaxiter.messages import Hello
from jaxiter.messenger import Messenger
from jaxiter.protocol import Machine
from jaxiter.rendezvous import Board, Store, service

_LIMIT_S = 60.0


def measure_agreement(processes: int, *, rounds: int, decisions: int = 200) -> dict[str, Any]:
    """Measure decisions that each wait for the one before, as if nothing could be looked ahead.

    A bare one is what no agreement can do without: each process but 0 writes a key that process 0
    reads; process 0 writes a key that each of the others reads.

    Args:
        processes: 2 or more.
        rounds: In each, both kinds run once.
        decisions: In a round, of either kind.

    Returns:
        `bare_us` and `jaxiter_us`, microseconds a decision, and their `ratio`; spreads as dicts.
    """
    with Gang(processes, 1) as gang:
        outcomes = gang.run(_decide_in_turns, rounds, decisions, deadline_s=300, stall_s=60)
    for outcome in outcomes:
        if not isinstance(outcome, Returned):
            raise RuntimeError(outcome.describe())
    # Of all processes the slowest, in each round.
    slowest = {
        kind: [max(times) for times in zip(*(o.value[kind] for o in outcomes), strict=True)]  # type: ignore[attr-defined]
        for kind in ("bare", "jaxiter")
    }
    ratios = [own / bare for own, bare in zip(slowest["jaxiter"], slowest["bare"], strict=True)]
    return {
        "processes": processes,
        "decisions": decisions,
        "bare_us": vars(Spread.of(slowest["bare"])),
        "jaxiter_us": vars(Spread.of(slowest["jaxiter"])),
        "ratio": vars(Spread.of(ratios)),
    }


def _decide_in_turns(rounds: int, decisions: int) -> dict[str, list[float]]:
    """Run both kinds in turns; on the ranks."""
    store = service()
    assert store is not None
    times: dict[str, list[float]] = {"bare": [], "jaxiter": []}
    for turn in range(-1, rounds):
        for kind, run in (("bare", _bare), ("jaxiter", _jaxiter)):
            spent_us = _timed(run, store, f"benchmark/{kind}/{turn}", decisions)
            rank.record("turn", kind=kind, turn=turn)
            if turn >= 0:
                times[kind].append(spent_us)
    return times


def _timed(
    run: Callable[[Store, str, int], None], store: Store, path: str, decisions: int
) -> float:
    began = time.perf_counter()
    run(store, path, decisions)
    return 1e6 * (time.perf_counter() - began) / decisions


def _bare(store: Store, path: str, decisions: int) -> None:
    process, processes = jax.process_index(), jax.process_count()
    for k in range(decisions):
        if process:
            store.set(f"{path}/r/{process}/{k}", '{"held":1}')
            assert store.get(f"{path}/d/{k}", _LIMIT_S) is not None
        else:
            for other in range(1, processes):
                assert store.get(f"{path}/r/{other}/{k}", _LIMIT_S) is not None
            store.set(f"{path}/d/{k}", '{"upto":1}')


def _jaxiter(store: Store, path: str, decisions: int) -> None:
    """Hold a batch, wait until it is decided, take it, and so on; no source, no device."""
    process, processes = jax.process_index(), jax.process_count()
    machine = Machine(
        Hello({}, process, 1),
        Terms(1, "drop", 1, ()),
        Timing.of(_LIMIT_S, False),
        time.monotonic(),
        process=process,
        processes=processes,
    )
    engine = Engine(machine, path, sends=True)
    board = Board(store, path, process, processes)
    messenger = Messenger(engine, board, process, path, lambda _: None)
    with engine:
        pass
    messenger.start()
    with engine:
        while not machine.started:
            engine.room.wait(1.0)
    for k in range(decisions):
        with engine:
            machine.batch_ready("")
            machine.consumer_waits(engine.clock())
            engine.poll()
            while machine.granted <= k:
                engine.grants.wait(1.0)
            machine.batch_placed()
            machine.consumer_got(engine.clock(), True)
    with engine:
        machine.source_ended()
    with engine:
        while machine.final is None:
            engine.ready.wait(0.1)
        machine.left()
        engine.stop()
    messenger.flush(1.0)
    for thread in messenger.threads:
        thread.join(_LIMIT_S)
