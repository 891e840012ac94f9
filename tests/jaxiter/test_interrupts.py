"""What Ctrl-C, or whatever a signal handler raises, leaves behind in the consumer's thread."""

import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import jaxiter
from jaxiter.deciding import Timing
from jaxiter.engine import Engine
from jaxiter.errors import ClosedError
from jaxiter.pipeline import SHORT_STEP_S, Loaded, Placed, mean_step_s
from tests.jaxiter.epochs import engine_of, epoch_of

LIMIT_S = 20.0


class Stages:
    """Batches without end; the consumer is interrupted when it gets the one at `at`."""

    def __init__(self, at: int) -> None:
        self.at = at

    def open(self) -> Iterator[Loaded]:
        """See `pipeline.Stages`."""
        position = 0
        while True:
            yield Loaded(position, "schema", 8, 64)
            position += 1

    def place(self, loaded: Loaded, position: int) -> Placed:
        """See `pipeline.Stages`."""
        return Placed(lambda: self._get(position), loaded.rows, loaded.nbytes)

    def place_padding(self, schema: str, position: int) -> Placed:
        """See `pipeline.Stages`."""
        raise AssertionError((schema, position))

    def _get(self, position: int) -> int:
        if position == self.at:
            raise KeyboardInterrupt
        return position


def test_a_lock_that_an_interrupt_left_taken_is_given_back() -> None:
    """After an interrupt between taking the lock and the block, the next block frees it."""
    engine = engine_of(Timing.alone(), 1)
    engine.__enter__()
    with engine:
        pass
    other = threading.Thread(target=_enter, args=(engine,), daemon=True)
    other.start()
    other.join(LIMIT_S)

    assert not other.is_alive()


def test_an_interrupt_while_the_lock_is_lent_is_what_is_raised() -> None:
    """No error about the lock hides the interrupt, and the lock is free."""
    engine = engine_of(Timing.alone(), 1)

    def nap() -> None:
        with engine:
            engine._lock.release()  # an interrupt in `nap` may come before it is taken again
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nap()
    other = threading.Thread(target=_enter, args=(engine,), daemon=True)
    other.start()
    other.join(LIMIT_S)

    assert not other.is_alive()


def _enter(engine: Engine) -> None:
    with engine:
        pass


def test_an_interrupted_next_closes_the_epoch() -> None:
    """No batch is skipped without a word: the next `next()` says so, and all threads end."""
    epoch = epoch_of(engine_of(Timing.alone(), 1), Stages(at=3))
    epoch.start(None, None)
    got = [epoch.next() for _ in range(3)]
    with pytest.raises(KeyboardInterrupt):
        epoch.next()
    with pytest.raises(ClosedError, match=r"next\(\) was interrupted by KeyboardInterrupt"):
        epoch.next()
    for thread in epoch.threads:
        thread.join(LIMIT_S)

    assert got == [0, 1, 2]
    assert not any(thread.is_alive() for thread in epoch.threads)


def test_a_guard_against_transfers_is_not_about_batches() -> None:
    """Batches come under `jax.transfer_guard("disallow")`, whichever thread places them."""
    rows: list[dict[str, Any]] = [{"x": np.arange(8, dtype=np.float64)}] * 40
    with jax.transfer_guard("disallow"):
        batches = list(jaxiter.iter_jax_batches(rows, batch_size=8, drop_last=True))

    assert len(batches) == 40


@pytest.mark.parametrize(("batches", "ahead"), [(1, True), (2, True), (4, True), (1000, False)])
def test_batches_are_placed_ahead_of_long_steps(batches: int, ahead: bool) -> None:
    """Also where a long step follows several batches at once; not where nearly all are short."""
    mean_s = 2 * SHORT_STEP_S
    for _ in range(5):
        for _ in range(batches - 1):
            mean_s = mean_step_s(mean_s, SHORT_STEP_S / 10)
        short_s = mean_s
        mean_s = mean_step_s(mean_s, 0.03)

    assert (mean_s > SHORT_STEP_S) is ahead
    assert (short_s > SHORT_STEP_S) is ahead
