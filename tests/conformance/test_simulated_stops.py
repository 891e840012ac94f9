"""A process that stops when time passes ends as one that may stop and go on at any moment."""

import math
from collections.abc import Hashable, Iterator
from typing import TypeVar

import pytest

from conformance.simulated import explore
from conformance.simulated_cases import Case
from harness.simulation import Post
from harness.worlds import QUANTUM_S, Worlds

# Number of each rank's state; `runs`, `stands` or `ran on`; what is on its way; quiet time.
State = tuple[tuple[int, ...], str, tuple[tuple[str, ...], ...], int]

T = TypeVar("T")

STOPS = [
    *(Case(batches=0, ends=ends, fault="stop", at=at) for ends in ("drop", "pad") for at in (0, 1)),
    Case(batches=1, fault="stop", at=1),
]


@pytest.mark.parametrize("case", STOPS, ids=lambda case: case.name)
def test_stops_when_time_passes_come_to_the_outcomes_of_stops_at_any_time(case: Case) -> None:
    """Single states, every order, and two events of its own for a stop: the same outcomes."""
    _, folded = explore(case, fold=True)

    plain = outcomes(case.exploration().worlds, case.at)

    assert folded.complete
    assert folded.outcomes == plain
    assert "SyncTimeoutError" in repr(plain)


def outcomes(worlds: Worlds, stops: int) -> frozenset[Hashable]:
    """Return what may come of the ranks, one of which may stop and go on at any moment."""
    first = worlds.start
    contents = tuple(worlds.texts(content) for content in first[worlds.count : -1])
    start = tuple(state >> 2 for state in first[: worlds.count]), "runs", contents, 0
    seen, todo, found = {start}, [start], set[Hashable]()
    while todo:
        state = todo.pop()
        ranks = [a.states[number] for a, number in zip(worlds.automata, state[0], strict=True)]
        gone = {stops} if state[1] == "stands" and state[3] > worlds.limit // 2 else set()
        if all(rank.finished or index in gone for index, rank in enumerate(ranks)):
            of_ranks = (None if i in gone else r.rank.outcome for i, r in enumerate(ranks))
            found.add(tuple(of_ranks))
            continue
        fresh = set(_nexts(worlds, state, stops)) - seen
        seen |= fresh
        todo += fresh
    return frozenset(found)


def _nexts(worlds: Worlds, state: State, stops: int) -> Iterator[State]:
    numbers, how, contents, quiet = state
    running = [i for i in range(worlds.count) if i != stops or how != "stands"]
    moving = False
    for index in running:
        automaton, rank = worlds.automata[index], worlds.automata[index].states[numbers[index]]
        for move in rank.moves:
            moving = True
            to, posts = automaton.step(numbers[index], move)
            after = 0 if automaton.counts(move) else quiet
            yield _with(numbers, index, to), how, _sent(worlds, contents, index, posts), after
        for sender, channel in worlds.into[index] if rank.listens else ():
            at = channel - worlds.count
            if contents[at]:
                moving = True
                to, posts = automaton.step(numbers[index], ((sender, contents[at][0]),))
                rest = _with(contents, at, contents[at][1:])
                yield _with(numbers, index, to), how, _sent(worlds, rest, index, posts), quiet
    if how == "runs" and not worlds.automata[stops].states[numbers[stops]].finished:
        yield numbers, "stands", contents, quiet
    if how == "stands" and quiet <= worlds.limit // 2:
        yield numbers, "ran on", contents, quiet
    first_s = min(worlds.automata[i].states[numbers[i]].wakes_s for i in running)
    if not moving and first_s < math.inf:
        quanta = max(1, math.ceil(first_s / QUANTUM_S))
        if quiet + quanta <= worlds.limit:
            for index in range(worlds.count):
                event = "wait" if index in running else "stand", quanta * QUANTUM_S
                to, posts = worlds.automata[index].step(numbers[index], event)
                numbers = _with(numbers, index, to)
                contents = _sent(worlds, contents, index, posts)
            yield numbers, how, contents, quiet + quanta


def _sent(
    worlds: Worlds, contents: tuple[tuple[str, ...], ...], sender: int, posts: tuple[Post, ...]
) -> tuple[tuple[str, ...], ...]:
    for to, text in posts:
        for (own, receiver), channel in worlds.channel.items():
            if own == sender and to in (None, receiver):
                at = channel - worlds.count
                contents = _with(contents, at, (*contents[at], text))
    return contents


def _with(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])
