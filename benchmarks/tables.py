"""Results as Markdown. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.cells import Cell
from benchmarks.contestants import CONTESTANTS
from benchmarks.figures import Figures, Spread, figures, ratio, rounds_of
from benchmarks.works import WORKS

_HOW_TO_READ = (
    "Median of the rounds, quartiles in brackets. In each round all contestants took turns on the "
    "same rows; a ratio is taken in each round, and above 1 the row is faster than the column. Of "
    "several processes the slowest counts."
)
_WHAT_IS_BARE = (
    "Each waits for the one before. Bare: each process but 0 sets a key, which process 0 gets; it "
    "sets a key, which each of the others gets."
)


def cell_figures(
    cell: Cell, ranks: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, Any]:
    """Return the figures of each contestant of a cell and the ratios of each pair that is quoted.

    Returns:
        `figures`: by contestant; `ratios`: [contestant][other], how many times as fast as the
        other it is.
    """
    epochs = [rank["epochs"] for rank in ranks]
    rounds = {name: rounds_of(epochs, name) for name in names}
    return {
        "figures": {name: figures(rounds[name], cell.step_ms) for name in names},
        "ratios": {
            name: {
                other: ratio(rounds[name], rounds[other], cell.step_ms)
                for other in names
                if other != name
            }
            for name in names
        },
    }


def promised_mib(cell: Cell) -> float:
    """Return what jaxiter's docstring lets it hold in a process beyond its source, in MiB."""
    batch = WORKS[cell.work].batch_bytes
    host = max(2, min(256, (64 << 20) // batch))
    # Of batches: one that is read, two placed, one being placed, and the consumer's.
    return (host + 1 + 2 + 1 + 1) * batch / 2**20


def markdown(
    results: Sequence[tuple[Cell, Mapping[str, Any]]], machine: Mapping[str, Any], command: str
) -> str:
    """Return all results: the machine, then a table a cell."""
    lines = ["# Results", "", f"`{command}`", "", machine_line(machine), ""]
    lines += [
        _HOW_TO_READ,
        "",
    ]
    for cell, result in results:
        lines += cell_lines(cell, result)
    return "\n".join(lines)


def agreement_lines(agreement: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a decision costs, as a table; nothing if it was not measured."""
    if not agreement:
        return []
    lines = [
        "## A decision beside its bare primitives",
        "",
        _WHAT_IS_BARE,
        "",
        _row(["processes", "bare us", "jaxiter us", "ratio"]),
        _row(["---:"] * 4),
    ]
    for one in agreement:
        spreads = [
            _spread(Spread(**one[key]), digits)
            for key, digits in (("bare_us", 0), ("jaxiter_us", 0), ("ratio", 2))
        ]
        lines.append(_row([str(one["processes"]), *spreads]))
    return [*lines, ""]


def machine_line(machine: Mapping[str, Any]) -> str:
    """Return the state of the machine in a sentence."""
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    load = ", ".join(map(str, machine["load_1_5_15_min"]))
    return (
        f"Machine: {machine['cores']} cores of {machine['processor']}, {machine['mhz']} MHz, "
        f"governor {machine['governor']}, load {load}, {machine['memory_free_gib']} GiB free; "
        f"Linux {machine['kernel']}, Python {machine['python']}, {packages}."
    )


def cell_lines(cell: Cell, result: Mapping[str, Any]) -> list[str]:
    """Return the table of one cell."""
    found: Mapping[str, Figures] = result["figures"]
    ratios: Mapping[str, Mapping[str, Spread]] = result["ratios"]
    columns = [name for name in ("bound", "hand", "ray-off", "ray", "resident") if name in found]
    steps = ["share of step %"] if cell.step_ms else []
    heads = [
        "contestant",
        "us a batch",
        "first ms",
        "wait us",
        *steps,
        *(f"x {name}" for name in columns),
        "peak MiB",
    ]
    rule = ["---", *["---:"] * (len(heads) - 1)]
    lines = [f"## {cell}", "", WORKS[cell.work].words, "", _row(heads), _row(rule)]
    for name, one in found.items():
        share = [_number(100 * one.share.median, 1)] if cell.step_ms else []
        lines.append(
            _row(
                [
                    CONTESTANTS[name].words,
                    _spread(one.batch_us, 0),
                    _number(one.first_ms.median, 1),
                    _number(one.wait_us.median, 0),
                    *share,
                    *("" if o == name else _spread(ratios[name][o], 2) for o in columns),
                    _number(one.peak_mib.median, 1),
                ]
            )
        )
    if "jaxiter" in found:
        lines += [
            "",
            f"Memory that jaxiter may use beyond its source: {promised_mib(cell):.1f} MiB",
            "(what it keeps from the epoch before, up to 64 MiB, is not in its peak)",
        ]
    return [*lines, ""]


def _row(entries: Sequence[str]) -> str:
    return f"| {' | '.join(entries)} |"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def _spread(spread: Spread, digits: int) -> str:
    return f"{spread.median:.{digits}f} [{spread.low:.{digits}f}, {spread.high:.{digits}f}]"
