"""What each backend costs: to start, to start anew, a case on warm ranks.

python -m tests.harness.costs
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack

from harness import Gang, Outcome, Returned
from tests.harness import cases
from tests.harness.places import NAMES, place


def measure(name: str, starts: int, runs: int) -> dict[str, list[float]]:
    """Give seconds of each: `place`, `start`, `anew`, `case`."""
    took_s: dict[str, list[float]] = {"place": [], "start": [], "anew": [], "case": []}
    with ExitStack() as stack:
        began_s = time.monotonic()
        backend = stack.enter_context(place(name))
        took_s["place"].append(time.monotonic() - began_s)
        began_s = time.monotonic()
        # A host of the slice has as many; a gang of another backend is given the same.
        gang = stack.enter_context(Gang(2, 4, backend))
        took_s["start"].append(time.monotonic() - began_s)
        for _ in range(starts):
            gang.renew()
            began_s = time.monotonic()
            _returned(gang.run(os.getpid))
            took_s["anew"].append(time.monotonic() - began_s)
        _returned(gang.run(cases.gather))  # the first collective of a mesh is compiled
        for _ in range(runs):
            began_s = time.monotonic()
            _returned(gang.run(cases.gather))
            took_s["case"].append(time.monotonic() - began_s)
    return took_s


def _returned(outcomes: Sequence[Outcome]) -> None:
    assert all(isinstance(o, Returned) for o in outcomes), [o.describe() for o in outcomes]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--starts", type=int, default=3, help="with fresh processes")
    parser.add_argument("--runs", type=int, default=50, help="of a function with one collective")
    options = parser.parse_args()
    for name in options.backend:
        took_s = measure(name, options.starts, options.runs)
        words = [
            f"{what} {statistics.median(each):.3f} ({min(each):.3f} to {max(each):.3f})"
            for what, each in took_s.items()
        ]
        print(f"{name:10} seconds: {', '.join(words)}", flush=True)


if __name__ == "__main__":
    main()
