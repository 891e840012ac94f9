"""The command: `python -m benchmarks`."""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.agreement import measure_agreement
from benchmarks.cells import Cell
from benchmarks.contestants import CONTESTANTS, installed
from benchmarks.machine import machine_state
from benchmarks.plot import draw
from benchmarks.running import CellError, contestants_of, gangs
from benchmarks.tables import agreement_lines, cell_figures, cell_lines, machine_line, markdown
from benchmarks.works import WORKS


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for, print it, and write it to a folder if one is given."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    options = parser.parse_args(given)
    lacking = "is not installed; the dependency group `benchmarks` has it"
    if options.write is not None and find_spec("matplotlib") is None:
        parser.error(f"--write draws a picture with matplotlib, which {lacking}")
    if options.contestants is not None and not set(options.contestants) <= set(installed()):
        parser.error(f"grain {lacking}")
    names = options.contestants or installed()
    machine = machine_state()
    command = shlex.join(["python", "-m", "benchmarks", *given])
    results: list[tuple[Cell, dict[str, Any]]] = []
    failures = []
    with gangs() as running:
        for cell in _cells(options):
            own = contestants_of(cell, names)
            if not own:
                continue
            print(f"{cell}: {', '.join(own)}", file=sys.stderr, flush=True)
            try:
                ranks = running.run(cell, own, options.rounds, options.deadline_s)
            except CellError as error:
                failures.append(f"{cell}: {error}")
                continue
            results.append((cell, cell_figures(cell, ranks, own)))
            print("\n".join(cell_lines(*results[-1])), flush=True)
            if options.write is not None:  # what is measured is kept, whatever comes next
                _write(
                    options.write,
                    markdown(results, machine, command),
                    results,
                    [],
                    machine,
                    command,
                )
    agreement = [
        measure_agreement(processes, rounds=options.rounds)
        for processes in (options.processes if options.agreement else [])
        if processes > 1
    ]
    decisions = "\n".join(agreement_lines(agreement))
    text = markdown(results, machine, command) + decisions
    print(decisions, machine_line(machine), sep="\n")
    if options.write is not None:
        _write(options.write, text, results, agreement, machine, command)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def _write(
    folder: Path,
    text: str,
    results: Sequence[tuple[Cell, dict[str, Any]]],
    agreement: Sequence[dict[str, Any]],
    machine: dict[str, Any],
    command: str,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.md").write_text(text)
    value = {
        "command": command,
        "machine": machine,
        "agreement": list(agreement),
        "cells": [
            {
                "cell": asdict(cell),
                "figures": {name: asdict(one) for name, one in result["figures"].items()},
                "ratios": {
                    name: {other: asdict(spread) for other, spread in others.items()}
                    for name, others in result["ratios"].items()
                },
            }
            for cell, result in results
        ],
    }
    (folder / "results.json").write_text(json.dumps(_rounded(value), indent=1) + "\n")
    if results:
        draw(results, folder / "results.svg")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _cells(options: argparse.Namespace) -> list[Cell]:
    """Return the product of all that was asked for, ordered so that a gang is used up."""
    return [
        Cell(
            work,
            source,
            processes,
            devices,
            0.0 if step == "launch" else step,
            batches,
            uneven=shards == "uneven",
            launches=step == "launch",
        )
        for source, processes, devices, work, step, batches, shards in product(
            options.sources,
            options.processes,
            options.devices,
            options.work,
            options.step_ms,
            options.batches,
            options.shards,
        )
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure iterators of JAX batches side by side, in turns, on the same rows. "
        "Lists are separated by commas; each combination is a cell.",
    )
    contestants = "; ".join(f"{name}: {one.words}" for name, one in CONTESTANTS.items())
    works = "; ".join(f"{name}: {work.words}" for name, work in WORKS.items())
    add = parser.add_argument
    add("--work", type=_of(WORKS), default=["dense", "wide"], help=works)
    add("--contestants", type=_of(CONTESTANTS), default=None, help=contestants)
    add(
        "--sources",
        type=_of(("memory", "frozen", "ray")),
        default=["memory"],
        help="memory: arrays that the source could write to; frozen: arrays over memory that "
        "nobody can write to, as Ray hands out; ray: a dataset",
    )
    add("--processes", type=_numbers(int), default=[2])
    add("--devices", type=_numbers(int), default=[1], help="CPU devices of each process")
    add(
        "--step-ms",
        type=_steps,
        default=[0.0, 10.0],
        help="0: no step; launch: a reduction is launched for each batch and not waited for; else "
        "milliseconds to wait without the CPU, then a reduction that is waited for",
    )
    add("--batches", type=_numbers(int, least=2), default=[200], help="batches an epoch")
    add("--shards", type=_of(("even", "uneven")), default=["even"])
    add("--rounds", type=int, default=5, help="in each, every contestant runs one epoch")
    add("--agreement", action="store_true", help="also measure a decision on its own")
    add("--deadline-s", type=float, default=600.0, help="of one cell")
    add("--write", type=Path, default=None, metavar="DIR", help="results.md, .json and .svg")
    return parser


def _of(known: Any) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        given = text.split(",")
        for name in given:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return given

    return names


def _steps(text: str) -> list[float | str]:
    number = _numbers(float, least=0)
    return [part if part == "launch" else number(part)[0] for part in text.split(",")]


def _numbers(kind: Callable[[str], Any], least: float = 1) -> Callable[[str], list[Any]]:
    def numbers(text: str) -> list[Any]:
        try:
            given = [kind(part) for part in text.split(",")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        if min(given) < least:
            raise argparse.ArgumentTypeError(f"{min(given)} is less than {least}")
        return given

    return numbers


if __name__ == "__main__":
    sys.exit(main())
