"""Results as one picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cells import Cell

_COLOURS = {
    "bound": "#999999",
    "resident": "#999999",
    "hand": "#a6cee3",
    "ray-off": "#1f78b4",
    "ray": "#e31a1c",
    "ray-10": "#fb9a99",
    "grain": "#b2df8a",
    "jaxiter-off": "#fdbf6f",
    "jaxiter": "#ff7f00",
}


def draw(results: Sequence[tuple[Cell, Mapping[str, Any]]], path: Path) -> None:
    """Draw the microseconds a batch of each contestant, one panel a cell, as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "jaxiter"
    from matplotlib import pyplot

    columns = min(3, len(results))
    rows = -(-len(results) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(4.2 * columns, 2.4 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(results) :]:
        axis.axis("off")
    for axis, (cell, result) in zip(axes.flat, results, strict=False):
        found = result["figures"]
        names = list(found)
        medians = [found[name].batch_us.median for name in names]
        spread = [
            [found[name].batch_us.median - found[name].batch_us.low for name in names],
            [found[name].batch_us.high - found[name].batch_us.median for name in names],
        ]
        axis.barh(
            names,
            medians,
            xerr=spread,
            color=[_COLOURS[name] for name in names],
            error_kw={"linewidth": 0.8},
        )
        axis.invert_yaxis()
        axis.set_title(str(cell), fontsize=7)
        axis.tick_params(labelsize=7)
        axis.set_xlabel("us a batch (less is better)", fontsize=7)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
