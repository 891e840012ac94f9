"""How far the threads of one process of two read ahead, and when they look again."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from jaxiter import pipeline
from jaxiter.agreement import Standing
from jaxiter.deciding import Timing
from jaxiter.errors import ClosedError
from jaxiter.messages import Hello, Report
from jaxiter.pipeline import Loaded, Placed
from jaxiter.protocol import Machine
from tests.jaxiter.epochs import engine_of, epoch_of

LIMIT_S = 20.0
NEVER_S = 3600.0


class Stages:
    """Batches of `nbytes`; the source hangs after `batches` of them, until it is let go."""

    def __init__(self, nbytes: int, batches: int = 1_000_000) -> None:
        self.nbytes = nbytes
        self.batches = batches
        self.let_go = threading.Event()
        self.read = 0

    def open(self) -> Iterator[Loaded]:
        """See `pipeline.Stages`."""
        for position in range(self.batches):
            self.read += 1
            yield Loaded(position, "schema", 8, self.nbytes)
        self.let_go.wait(3 * LIMIT_S)

    def place(self, loaded: Loaded, position: int) -> Placed:
        """See `pipeline.Stages`."""
        return Placed(lambda: position, loaded.rows, loaded.nbytes)

    def place_padding(self, schema: str, position: int) -> Placed:
        """See `pipeline.Stages`."""
        raise AssertionError((schema, position))


def held(batches: int) -> Standing:
    """Return the standing of a process that holds so many batches."""
    return Standing(held=batches, schemas=((0, "schema"),) if batches else ())


class First:
    """Process 0 of two, whose peer is played by the test; news may be held back for `soon_s`."""

    def __init__(
        self, stages: Stages, *, quick: bool = False, soon_s: float = 1.0, peer_holds: int = 0
    ) -> None:
        timing = Timing(NEVER_S, beat_s=NEVER_S, soon_s=soon_s, warn_s=NEVER_S)
        self.stages = stages
        self.engine = engine_of(timing, 2)
        self.epoch = epoch_of(self.engine, stages)
        self.got: list[int] = []
        self.consumer = threading.Thread(target=self._take, daemon=True)
        with self.engine as machine:
            machine.quick = quick
        self.epoch._step_s = 0.0 if quick else 1.0
        self.epoch.start(None, None)
        self.hear(Report(held(peer_holds), Hello({}, 1, 1)))

    def hear(self, report: Report) -> None:
        """Let a report of the peer come."""
        with self.engine as machine:
            machine.report_came(1, report, self.engine.clock())

    def until(self, there: Callable[[Machine], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            with self.engine as machine:
                if there(machine):
                    return
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def close(self) -> None:
        """End all threads."""
        self.stages.let_go.set()
        self.epoch.close()
        for thread in self.epoch.threads:
            thread.join(LIMIT_S)

    def _take(self) -> None:
        with contextlib.suppress(ClosedError):
            self.got.append(self.epoch.next())


@pytest.mark.parametrize(("mib", "few"), [(1, 8), (4, 4), (16, 2)])
def test_a_few_batches_are_read_before_any_is_decided(mib: int, few: int) -> None:
    """At first the host holds up to 8 batches of together at most 16 MiB, or 2."""
    first = First(Stages(mib << 20))
    try:
        first.until(lambda machine: machine.started and not machine.has_room)
        read = first.stages.read
    finally:
        first.close()

    assert read == few


def test_a_consumer_without_a_step_has_as_much_read_as_fits() -> None:
    """Where the consumer is back at once, a full host buffer grows to all that memory allows."""
    first = First(Stages(1 << 20), quick=True)
    try:
        first.until(lambda machine: machine.started and not machine.has_room)
        read = first.stages.read
    finally:
        first.close()

    assert read == 64


def test_a_consumer_wakes_a_reader_that_rests_though_there_is_room() -> None:
    """A consumer without a step that waits has the buffer filled, which frees news held back."""
    first = First(Stages(8 << 20), quick=True)
    try:
        first.until(lambda _: first.stages.read == 8)
        first.hear(Report(held(3)))
        got = [first.epoch.next() for _ in range(3)]
        first.consumer.start()
        first.until(lambda _: first.stages.read == 11)
    finally:
        first.close()

    assert got == [0, 1, 2]


def test_a_waiting_consumer_hears_of_an_alarm_that_others_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """News that comes while the consumer waits, and is held back, is decided when that is over."""
    monkeypatch.setattr(pipeline, "_STEP_S", NEVER_S)
    first = First(Stages(1 << 20, batches=3), quick=True)
    try:
        first.until(lambda _: first.stages.read == 3)
        first.epoch._naps = False
        first.consumer.start()
        first.until(lambda machine: machine.waited_s(first.engine.clock()) > 0)
        first.hear(Report(held(3)))
        first.consumer.join(LIMIT_S)
        got = list(first.got)
    finally:
        first.close()

    assert got == [0]


def test_what_fills_the_buffer_is_decided_before_more_is_read() -> None:
    """News of a full host buffer is not held back, though the buffer grows right after."""
    first = First(Stages(1 << 20, batches=8), quick=True, soon_s=NEVER_S, peer_holds=8)
    try:
        first.until(lambda machine: machine.granted == 8)
    finally:
        first.close()
