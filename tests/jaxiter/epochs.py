"""An epoch of process 0 with stages of a test's own, without a messenger."""

import time

from jaxiter.agreement import Terms
from jaxiter.deciding import Timing
from jaxiter.engine import Engine
from jaxiter.messages import Hello
from jaxiter.pipeline import Epoch, Stages
from jaxiter.protocol import Machine
from jaxiter.stats import EpochStats


def engine_of(timing: Timing, processes: int) -> Engine:
    """Return the engine of process 0 of so many."""
    machine = Machine(
        Hello({}, 0, 1),
        Terms(8, "drop", 1, ()),
        timing,
        time.monotonic(),
        process=0,
        processes=processes,
    )
    return Engine(machine, "test", sends=processes > 1)


def epoch_of(engine: Engine, stages: Stages) -> Epoch:
    """Return an epoch that has not been started."""
    return Epoch(
        engine,
        stages,
        EpochStats(0),
        process=0,
        batch_size=8,
        prefetch_to_device=2,
        drops_tail=True,
        label="test",
        on_over=lambda: None,
    )
