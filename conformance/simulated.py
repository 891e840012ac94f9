"""Explore, draw and replay what processes of `jaxiter` do in a simulation, and what it costs.

`python -m conformance.simulated explore` looks at every order of events of a small case, `draw` at
random ones of any case, `replay` shows a printed schedule again, `cost` prints the table.
"""

import argparse
import contextlib
import functools
import math
import random
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence

from conformance import simulated_cost
from conformance.showing import show
from conformance.simulated_cases import Case
from conformance.simulated_cost import Service, cost
from conformance.simulated_jobs import each_apart
from conformance.simulated_options import cases_of, parser_of
from conformance.simulated_parts import Piece, explore_parts, pieces
from conformance.simulated_table import Explored, RecordError, add, open_record, table
from harness.exploration import Exploration, Found
from harness.simulation import Drawn, Fault, Simulation
from harness.worlds import End

_PATIENCE_S = 10_000.0  # virtual; whoever is not finished by then is stuck


def explore(
    case: Case, *, fold: bool = False, parts: bool = False, most_states: float = math.inf
) -> tuple[str, Found]:
    """Look at every order of events of a case.

    Args:
        case: The case.
        fold: Whether to put in groups those states of a process that are alike.
        parts: Whether to do so in one part after the other: see `simulated_parts`.
        most_states: Stop after so many, of a part if there are parts.

    Returns:
        What to tell of it, and what was found.
    """
    piece = Piece(case, tuple(case.apart()) if parts else (case,))
    return _looked_at(piece, fold=fold or parts, most_states=most_states)


def _looked_at(piece: Piece, *, fold: bool, most_states: float) -> tuple[str, Found]:
    if fold:
        found = explore_parts(piece.parts, most_states=most_states)
    else:
        found = piece.case.exploration().run(most_states=most_states)
    words = (
        f"{piece.name}: {found.states:,} states, {found.steps:,} steps, {found.ends:,} ends, "
        f"{found.seconds:.1f} s"
    )
    if found.wrong:
        return "\n".join([words, *told(piece.case.exploration(), found.schedule)]), found
    return f"{words}, {'all' if found.complete else 'not all'} looked at", found


def told(exploration: Exploration, schedule: Iterable[str]) -> list[str]:
    """Return the events of a schedule, where that leaves the ranks, and what is wrong there.

    Where nothing is, and more can happen, what can.

    Raises:
        ValueError: An event is not possible where the schedule has it.
    """
    passed = exploration.replay(schedule)
    world = passed[-1][1] if passed else exploration.worlds.start
    worlds = exploration.worlds.unreduced()
    more = [] if worlds.over(world) else sorted(event for event, _ in worlds.successors(world))
    verdict = exploration.verdict(world) or "nothing is wrong"
    if more and verdict == "nothing is wrong":
        verdict += f" so far; more can happen: {', '.join(more)}"
    events = "; ".join(event for event, _ in passed)
    return [f"  schedule: {events}", worlds.describe(world), f"  {verdict}"]


def draw(case: Case, seed: int) -> tuple[str, list[tuple[float, int, str]]]:
    """Run a case once, with all that may happen in several ways drawn from a seed.

    Returns:
        What is wrong, empty if nothing; and when which rank did what.
    """
    source = random.Random(seed)
    members = case.members()
    faults = []
    if case.fault == "die":
        faults.append(Fault(case.at, "die", source.random() * 0.1))
    if case.fault == "stop":
        for_s = source.choice((0.5, 4.0, 1e6))
        faults.append(Fault(case.at, "stop", source.random() * 0.1, for_s))
    paces = [source.choice((0.0, 0.001, 0.02)) for _ in members]
    simulation = Simulation(
        members,
        Drawn(source, source.choice((0.0, 0.001, 0.02)), slow=0.1),
        lambda rank, move, source: source.random() * paces[rank] + 1e-4,  # noqa: ARG005
        source,
        faults=faults,
        gatherers=frozenset({0}),
        record=True,
    )
    # What stops for good is not waited for.
    stopped = frozenset(f.rank for f in faults if f.kind == "stop" and f.for_s > _PATIENCE_S)
    simulation.run(_PATIENCE_S)
    alive = simulation.alive
    ranks = tuple(rank if alive[index] else None for index, rank in enumerate(members))
    end = End(ranks, stopped, 0.0)
    if end.unfinished:
        return f"not finished: {simulation.stuck()}", simulation.trace
    return case.judge(end), simulation.trace


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        Its status: 1 if something is wrong, 3 if not all was looked at; 2 for no such schedule, as
        for options and files that cannot be used; 130 after Ctrl-C.
    """
    parser = parser_of(__doc__)
    options = parser.parse_args(arguments)
    if options.command == "cost":
        service = Service(options.request_ms / 1e3, options.byte_ns / 1e9, options.latency_ms / 1e3)
        costs = [cost(n, service, decisions=options.decisions) for n in options.ranks]
        show(simulated_cost.table(costs))
        return 0
    try:
        cases = cases_of(options)
    except ValueError as error:
        parser.error(str(error))
    if options.command == "replay":
        schedule = [event.strip() for event in options.schedule.split(";")]
        try:
            show("\n".join([cases[0].name, *told(cases[0].exploration(), schedule)]))
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        return 0
    return (_explore if options.command == "explore" else _draw)(cases, options)


def _explore(cases: Sequence[Case], options: argparse.Namespace) -> int:
    asked = [
        piece
        for case in cases
        for piece in (pieces(case) if options.parts else [Piece(case, (case,))])
    ]
    known: dict[str, Explored] = {}
    status = 0
    try:
        if options.record:
            known = open_record(options.record)
        due = [piece for piece in asked if piece.name not in known or known[piece.name].is_cut]
        with contextlib.closing(_results(due, options)) as results:
            for piece, result in results:
                if result is None:
                    print(f"{piece.name}: its process was ended", file=sys.stderr)
                    continue
                words, known[piece.name] = result
                if options.record:
                    add(options.record, known[piece.name])
                if not show(words):
                    break
    except RecordError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = 130
    lines = [known[piece.name] for piece in asked if piece.name in known]
    if len(lines) < len(asked):
        show(f"{len(asked) - len(lines)} of {len(asked)} pieces are left")
    if options.markdown:
        show(f"\n{table(lines)}")
    if any(line.wrong for line in lines):
        return 1
    whole = len(lines) == len(asked) and all(line.complete for line in lines)
    return status or (0 if whole else 3)


def _results(
    due: Sequence[Piece], options: argparse.Namespace
) -> Generator[tuple[Piece, tuple[str, Explored] | None], None, None]:
    run = functools.partial(
        _explored, fold=options.fold or options.parts, most_states=options.most_states
    )
    in_time = _in_time(due, options.minutes)
    if options.jobs > 1:
        yield from each_apart(run, in_time, options.jobs)
    else:
        for piece in in_time:
            yield piece, run(piece)


def _in_time(due: Iterable[Piece], minutes: float) -> Iterator[Piece]:
    began_s = time.monotonic()
    for piece in due:
        yield piece
        if time.monotonic() - began_s > 60 * minutes:
            return


def _explored(piece: Piece, *, fold: bool, most_states: float) -> tuple[str, Explored]:
    began_s = time.process_time()
    words, found = _looked_at(piece, fold=fold, most_states=most_states)
    return words, Explored.of(piece, found, time.process_time() - began_s)


def _draw(cases: Sequence[Case], options: argparse.Namespace) -> int:
    for seed in range(options.seed, options.seed + options.runs):
        case = random.Random(seed).choice(cases)
        wrong, trace = draw(case, seed)
        if wrong:
            lines = [f"  {when:10.6f} s  {rank} {what}" for when, rank, what in trace]
            lines += [f"{case.name}, seed {seed}: {wrong}. The same again: --seed {seed} --runs 1"]
            show("\n".join(lines))
            return 1
    show(f"seeds {options.seed} to {options.seed + options.runs - 1}: nothing is wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
