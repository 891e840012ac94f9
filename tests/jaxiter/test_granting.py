"""When one more batch that is held leads to a decision, and how far ahead batches are held."""

import pytest

from jaxiter.actions import Action, Announce
from jaxiter.agreement import Standing, Terms
from jaxiter.deciding import Timing
from jaxiter.messages import Hello, Report
from jaxiter.protocol import Machine

NOW = 100.0


def machine(processes: int, held: int = 50) -> Machine:
    """Return process 0, whose epoch has begun and whose peers hold so many batches."""
    first = Machine(
        Hello({}, 0, 16),
        Terms(4, "drop", 1, tuple(range(processes))),
        Timing.of(60.0, False) if processes > 1 else Timing.alone(),
        NOW,
        process=0,
        processes=processes,
    )
    for process in range(1, processes):
        first.report_came(process, Report(Standing(), Hello({}, process, 16)), NOW)
    first.poll(NOW)
    for process in range(1, processes):
        first.report_came(process, Report(Standing(held=held, schemas=((0, "s"),))), NOW)
    first.poll(NOW)
    assert first.started
    return first


def hold(first: Machine, batches: int) -> list[Action]:
    """Let `first` hold so many more batches at `NOW`, and return what it asks for."""
    actions = []
    for _ in range(batches):
        first.batch_ready("s")
        actions += first.poll(NOW)
    return actions


def test_a_process_alone_grants_what_it_holds() -> None:
    """A process that decides alone may deliver each batch as soon as it is held."""
    alone = machine(1)
    granted = []
    for _ in range(3):
        alone.batch_ready("s")
        granted.append((alone.granted, alone.is_due(NOW)))

    assert granted == [(1, False), (2, False), (3, False)]


def test_a_process_alone_ends_after_what_it_granted() -> None:
    """The end of a process that decides alone comes after all that it granted."""
    alone = machine(1)
    alone.batch_ready("s")
    alone.batch_ready("s")
    alone.source_ended()
    alone.poll(NOW)

    assert alone.granted == 2
    assert alone.final is not None


def test_news_that_can_wait_are_looked_at_in_time() -> None:
    """What is granted well ahead of the consumer grows at once or after `lazy_s`, not never."""
    first = machine(2)
    hold(first, 20)
    before = first.granted
    later = NOW + 2 * Timing().lazy_s

    assert before < 20
    assert any(isinstance(action, Announce) for action in first.poll(later))
    assert first.granted == 20


def test_a_consumer_without_a_step_is_granted_many_at_once() -> None:
    """Where the consumer is back at once, half a look-ahead is granted by one decision."""
    first = machine(2)
    first.quick = True

    assert hold(first, 7) == []
    assert len(hold(first, 1)) == 1
    assert first.granted == 8


@pytest.mark.parametrize("waits", ["the consumer here", "the consumer of another process"])
def test_a_few_are_granted_where_a_consumer_waits(waits: str) -> None:
    """Less than half a look-ahead is granted to whoever waits: here soon, elsewhere at once."""
    first = machine(2)
    first.quick = True
    if waits == "the consumer here":
        first.consumer_waits(NOW)
        hold(first, 1)
        late = NOW + Timing().soon_s
    else:
        hold(first, 1)
        waiting = Report(Standing(held=50), waited_s=0.001)
        first.report_came(1, waiting, NOW)
        late = NOW
    before = first.granted

    assert first.is_due(late)
    assert any(isinstance(action, Announce) for action in first.poll(late))
    assert (before, first.granted) == (0, 1)


def test_a_few_are_granted_where_no_more_can_be_held() -> None:
    """The few that another process holds are granted at once where there is no room here."""
    first = machine(2, held=3)
    first.quick = True

    assert hold(first, 15) == []
    assert len(hold(first, 1)) == 1
    assert (first.has_room, first.granted) == (False, 3)


def test_a_batch_that_others_lack_decides_nothing() -> None:
    """Nothing is due for a batch of process 0 while another process holds fewer."""
    first = machine(2)
    for _ in range(50):
        first.batch_ready("s")
        first.batch_placed()
        first.poll(NOW)
    first.batch_ready("s")
    first.poll(NOW)
    first.batch_ready("s")

    assert not first.is_due(NOW)
    assert first.granted == 50


@pytest.mark.parametrize(("most", "reached"), [(40, 40), (8, 16)])
def test_more_is_held_up_to_what_fits(most: int, reached: int) -> None:
    """Looking further doubles the look-ahead, up to what fits and never below what was agreed."""
    alone = machine(1)
    alone.memory_fits(most)
    for _ in range(5):
        alone.look_further()

    assert alone.look_ahead == reached
