"""What is built: only the iterator, typed, and usable without Ray."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_USE = """
import sys
sys.path.insert(0, sys.argv[1])
import jaxiter, numpy as np
assert jaxiter.__file__.startswith(sys.argv[1]), jaxiter.__file__
rows = {"x": np.arange(3.0, dtype=np.float32)}
batches = jaxiter.iter_jax_batches([rows], batch_size=2, paddings=0)
print([batch["x"].tolist() for batch in batches])
assert "ray" not in sys.modules
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120, capture_output=True)
    (built,) = directory.glob("*.whl")
    return built


def test_the_wheel_holds_the_iterator_alone(wheel: Path) -> None:
    """Harness, suite and gate are used from a checkout; the wheel has jaxiter and its licence."""
    names = zipfile.ZipFile(wheel).namelist()

    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"jaxiter"}
    assert "jaxiter/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_works_without_ray(wheel: Path, tmp_path: Path) -> None:
    """Where only the wheel is on the path, the iterator runs, and does not ask for Ray."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    command = [sys.executable, "-c", _USE, str(tmp_path)]

    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env={"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "[[0.0, 1.0], [2.0, 0.0]]"
