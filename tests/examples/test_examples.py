"""The programs to copy do what they say, as programs, checked by plain numpy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from examples import slice_inference, train_and_evaluate

ROOT = Path(__file__).parents[2]
LIMIT_S = 240.0


def run(program: str, *options: str) -> str:
    """Run an example as a user would; gives what it prints."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / program), *options],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_inference_predicts_every_row_once(tmp_path: Path) -> None:
    """On a slice that is not there: each id once, with the probability that numpy gives."""
    out, rows = tmp_path / "predictions.npz", 331
    printed = run(
        "slice_inference.py",
        *("--fake", "--topology", "2x2x2", "--version", "v4"),
        *("--rows", str(rows), "--out", str(out)),
    )

    found = np.load(out)
    weight, bias = slice_inference.weights()
    expected = 1 / (1 + np.exp(-(slice_inference.features(np.arange(rows)) @ weight + bias)))
    assert "2 processes, 8 devices" in printed
    assert found["id"].tolist() == list(range(rows))
    np.testing.assert_allclose(found["probability"], expected, rtol=1e-5)


def test_evaluation_counts_every_row_once(tmp_path: Path) -> None:
    """Under JaxTrainer: the counts are those of numpy over all rows, for the weights trained."""
    out, rows = tmp_path / "metrics.json", 203
    run("train_and_evaluate.py", "--fake", "--workers", "2", "--rows", str(rows), "--out", str(out))

    found = json.loads(out.read_text())
    data = train_and_evaluate.make(np.arange(rows, 2 * rows))
    margin = data["x"] @ np.array(found["model"]["weight"]) + found["model"]["bias"]
    assert found["steps"] > 0
    assert found["rows"] == rows
    assert found["right"] == int(np.sum((margin > 0) == (data["label"] == 1)))
    assert found["right"] > 0.8 * rows
