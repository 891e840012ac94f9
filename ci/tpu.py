"""Runs the suite on TPU slices of a Ray cluster, or on slices that are not there.

    python -m ci.tpu --topology 4x4 --version v6e --slices 1 --subject jaxiter
    python -m ci.tpu --fake --short

The exit status is the suite's; 2 when the cluster lacks the slices, and the error says what it has;
4 when an option cannot be used. Options that are not listed go to pytest (`-k`, `-x`, `--level`).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]
UNUSABLE = 4


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and exit as the suite does for an option that cannot be used."""
        self.print_usage(sys.stderr)
        self.exit(UNUSABLE, f"{self.prog}: error: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ci.tpu",
        description="Run the suite on TPU slices of a Ray cluster: the one that RAY_ADDRESS names, "
        "or that runs on this machine.",
        epilog="Other options go to pytest.",
        allow_abbrev=False,
    )
    parser.add_argument("--topology", default="4x4", help="chips of a slice (default: %(default)s)")
    parser.add_argument("--version", default="v6e", help="of the chips (default: %(default)s)")
    parser.add_argument("--slices", default=1, type=int, help="number (default: %(default)s)")
    parser.add_argument(
        "--subject", default="jaxiter", help="as the suite's (default: %(default)s)"
    )
    parser.add_argument(
        "--fake",
        action="store_true",
        help="on CPU devices of this machine, as if it had the slices",
    )
    return parser


def command(arguments: Sequence[str]) -> list[str]:
    """Give the command that runs the suite as these arguments ask for."""
    options, others = _parser().parse_known_args(arguments)
    kind = "fake" if options.fake else "tpu"
    backend = f"{kind}:{options.topology}:{options.version}:{options.slices}"
    suite = [sys.executable, "-m", "pytest", str(ROOT / "conformance")]
    return [*suite, "--subject", options.subject, "--backend", backend, *others]


def main() -> NoReturn:
    """Become the suite, so that a signal reaches it and nothing else has to end in time."""
    suite = command(sys.argv[1:])
    os.chdir(ROOT)
    os.execv(suite[0], suite)  # noqa: S606  its words are given one by one, so it needs no shell


if __name__ == "__main__":
    main()
