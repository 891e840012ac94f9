"""What the command for the simulation takes: its options, and the cases that they choose."""

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from conformance.simulated_cases import ENDS, FAULTS, Case

T = TypeVar("T", int, float)


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return what reads the command line: of `explore`, `draw`, `replay` and `cost`."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.simulated", description=description
    )
    commands = parser.add_subparsers(dest="command", required=True)
    shows = argparse.ArgumentDefaultsHelpFormatter
    for name in ("explore", "draw", "replay"):
        command = commands.add_parser(name, formatter_class=shows)
        command.add_argument("--ranks", type=_from(2), default=2, help="processes")
        command.add_argument("--batches", type=_from(0), default=1, help="of the longest source")
        command.add_argument("--ends", choices=ENDS, nargs="+", help="all, unless given")
        command.add_argument("--fault", choices=FAULTS, nargs="+", help="all, unless given")
        command.add_argument(
            "--at",
            type=int,
            nargs="+",
            help="the rank that has the fault; each of 0 and the last, unless given",
        )
        command.add_argument(
            "--tails", action="store_true", help="sources may end with a short batch"
        )
        command.add_argument("--listing", action="store_true", help="reports may come together")
        command.add_argument(
            "--most-ahead",
            type=_from(1),
            default=2,
            help="batches that may be held, if 2 are too few",
        )
        if name == "explore":
            command.add_argument(
                "--most-states",
                type=_from(1, float),
                default=math.inf,
                help="of a part, no more",
            )
            command.add_argument("--jobs", type=_from(1), default=1, help="pieces at once")
            command.add_argument(
                "--minutes",
                type=_from(0, float),
                default=math.inf,
                help="begin no piece after that",
            )
            command.add_argument("--markdown", action="store_true", help="a table at the end")
            command.add_argument(
                "--record", type=Path, help="a file of what is explored, which is not done again"
            )
            command.add_argument(
                "--fold", action="store_true", help="states of a process that are alike count once"
            )
            command.add_argument(
                "--parts",
                action="store_true",
                help="so, and settle first where each source stops: less memory, for large cases",
            )
        if name == "draw":
            command.add_argument("--seed", type=int, default=0, help="of the first run")
            command.add_argument("--runs", type=_from(1), default=1000)
        if name == "replay":
            command.add_argument("--schedule", required=True, help="events, with ; between them")
    command = commands.add_parser("cost", formatter_class=shows)
    command.add_argument(
        "--ranks",
        type=_from(2),
        nargs="+",
        default=[2, 4, 8, 16, 64, 256, 1024, 4096],
        help="processes, a line of the table each",
    )
    command.add_argument("--decisions", type=_from(1), default=100, help="that let batches go")
    command.add_argument("--request-ms", type=float, default=0.28, help="of the service, each")
    command.add_argument("--byte-ns", type=float, default=1.0, help="of the service, in addition")
    command.add_argument("--latency-ms", type=float, default=0.1, help="to the service, one way")
    return parser


def cases_of(options: argparse.Namespace) -> list[Case]:
    """Return the cases that options of `explore`, `draw` or `replay` choose.

    Raises:
        ValueError: A rank that has a fault is not there, or `replay` is left with several cases.
    """
    beyond = [at for at in options.at or () if at not in range(options.ranks)]
    if beyond:
        last = options.ranks - 1
        raise ValueError(f"--at {beyond[0]}: of {options.ranks} ranks the last is {last}")
    cases = [
        Case(
            ranks=options.ranks,
            batches=options.batches,
            ends=ends,
            fault=fault,
            at=at,
            tails=options.tails,
            listing=options.listing,
            most_ahead=options.most_ahead,
        )
        for ends in dict.fromkeys(options.ends or ENDS)
        for fault in dict.fromkeys(options.fault or FAULTS)
        for at in sorted({0} if fault == "none" else set(options.at or (0, options.ranks - 1)))
    ]
    if options.command == "replay" and len(cases) > 1:
        raise ValueError(f"replay plays one case, not {len(cases)}: {_several(cases)}")
    return cases


def _several(cases: Sequence[Case]) -> str:
    """Say which options must be given, with one value each, for one case to be left."""
    values: dict[str, dict[str, None]] = {
        "--ends": dict.fromkeys(str(case.ends) for case in cases),
        "--fault": dict.fromkeys(str(case.fault) for case in cases),
        "--at": dict.fromkeys(str(case.at) for case in cases if case.fault != "none"),
    }
    return "; ".join(
        f"give {option} one of {', '.join(several)}"
        for option, several in values.items()
        if len(several) > 1
    )


def _from(least: int, kind: type[T] = int) -> Callable[[str], T]:
    def number(text: str) -> T:
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{value} is not {least} or more")
        return value

    return number
