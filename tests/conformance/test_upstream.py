"""What is known of Ray's iterator, found by the suite's own cases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

#: Case, clause, verdict. Measured with Ray 2.56 to 2.60 at two processes; a change is worth a look.
#: Some of each verdict: all that is known is in conformance/known/, which the gate compares with.
PUBLIC = {
    # Two batches fewer than a peer in one window: IndexError on one process, a hang on the other.
    ("ahead-3-tails-padded", "COUNT-6"): "hang",
    ("default-neither", "SYNC-3"): "hang",
    ("float-int-on-last", "SCHEMA-2"): "fail",
    ("int64-big", "VALUE-3"): "fail",
    ("unfit-fraction-integer", "PAD-5"): "fail",
    ("kind-string", "VALUE-5"): "fail",
    ("mesh-dropped", "MESH-1"): "fail",
    ("shuffle-blocks-30-10-dropped", "ORDER-3"): "fail",
    ("skew-1-last-dropped", "COUNT-2"): "pass",
    ("value-tail-on-one", "PAD-1"): "pass",
    ("filter-dropped", "SPLIT-2"): "pass",
}
#: The same of its private generator, on two devices a process: with one, threads seldom deadlock.
PRIVATE = {
    ("no-rows-last-on-one", "SIZE-3"): "fail",
    ("pieces-short-middle-on-one", "SIZE-1"): "fail",
    ("columns-uneven", "VALUE-7"): "fail",
    ("reader-thread-long", "THREAD-2"): "hang",
    ("source-middle-on-last", "ERROR-1"): "hang",
    ("even-dropped", "COUNT-1"): "pass",
}


def _verdicts(
    subject: str, source: str, devices: int, names: list[str], report: Path
) -> dict[tuple[str, str], str]:
    """Run these cases of the suite at two processes, in a pytest of their own."""
    wanted = [f"{name}-p2d{devices}-{source}" for name in names]
    command = [sys.executable, "-m", "pytest", "conformance", "-q", "--subject", subject]
    command += ["--processes", "2", "--devices", str(devices), "--sources", source]
    command += ["-k", " or ".join(wanted), "--report", str(report)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert ran.returncode == 1, ran.stdout[-3000:] + ran.stderr[-2000:]
    clauses = json.loads((report / "report.json").read_text())["clauses"]
    return {(c["case"], r["id"]): c["verdict"] for r in clauses for c in r["cases"]}


@pytest.mark.parametrize(
    ("subject", "source", "devices", "expected"),
    [("ray", "ray", 1, PUBLIC), ("ray-generator", "memory", 2, PRIVATE)],
    ids=["ray", "ray-generator"],
)
def test_what_is_known_of_ray_is_found(
    subject: str, source: str, devices: int, expected: dict[tuple[str, str], str], tmp_path: Path
) -> None:
    """The suite's own cases show what was measured by hand, each under its clause."""
    names = sorted({case for case, _ in expected})

    found = _verdicts(subject, source, devices, names, tmp_path)

    assert {key: found.get(key) for key in expected} == expected
