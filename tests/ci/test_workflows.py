"""What is there to be pasted fits the systems that it is for, and names what there is."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import suite

CI = Path(__file__).parents[2] / "ci"
ROOT = CI.parent
GITHUB = CI / "github" / "gate.yml"
BUILDKITE = CI / "buildkite" / "gate.yml"
RAYCI = CI / "buildkite" / "gate.rayci.yml"
KUBERAY = CI / "kuberay" / "gate.rayjob.yaml"
#: What Ray's own tool adds to a Buildkite step, and takes off again.
RAYCI_KEYS = {"instance_type", "tags", "job_env"}


def _checked(path: Path, *schema: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", *schema, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        (GITHUB, ("--builtin-schema", "vendor.github-workflows")),
        (GITHUB, ("--builtin-schema", "custom.github-workflows-require-timeout")),
        (BUILDKITE, ("--builtin-schema", "vendor.buildkite")),
        (KUBERAY, ("--schemafile", str(CI / "kuberay" / "rayjob.schema.json"))),
    ],
    ids=["github", "github-timeout", "buildkite", "kuberay"],
)
def test_a_file_fits_its_schema(path: Path, schema: tuple[str, ...]) -> None:
    """Each file is valid by the schema of the system that reads it."""
    ran = _checked(path, *schema)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_group_for_ray_fits_once_its_tool_has_read_it(tmp_path: Path) -> None:
    """Without what Ray's tool takes off, the group is a valid Buildkite pipeline."""
    group = yaml.safe_load(RAYCI.read_text(encoding="utf-8"))
    steps = [{k: v for k, v in s.items() if k not in RAYCI_KEYS} for s in group["steps"]]
    plain = tmp_path / "pipeline.json"
    plain.write_text(json.dumps({"steps": [group | {"steps": steps}]}))
    ran = _checked(plain, "--builtin-schema", "vendor.buildkite")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert all(s["instance_type"] and s["tags"] for s in group["steps"])


@pytest.mark.parametrize("field", ["entrypoint", "rayClusterSpec"])
def test_the_schema_of_a_job_bites(tmp_path: Path, field: str) -> None:
    """A RayJob that lacks what it needs is refused, so that the check above says something."""
    job: dict[str, Any] = yaml.safe_load(KUBERAY.read_text(encoding="utf-8"))
    del job["spec"][field]
    broken = tmp_path / "job.yaml"
    broken.write_text(yaml.safe_dump(job))

    ran = _checked(broken, "--schemafile", str(CI / "kuberay" / "rayjob.schema.json"))
    assert ran.returncode == 1, ran.stdout
    assert field in ran.stdout


def test_a_slice_has_as_many_hosts_as_the_gate_has_processes() -> None:
    """Hosts, chips and what the command line asks for are the same numbers."""
    spec = yaml.safe_load(KUBERAY.read_text(encoding="utf-8"))["spec"]
    (workers,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = workers["template"]["spec"]["containers"]
    chips = container["resources"]["limits"]["google.com/tpu"]

    assert f"--processes {workers['numOfHosts']} --devices {chips} " in spec["entrypoint"]


def test_cells_that_are_named_are_environments() -> None:
    """Each environment that a workflow runs is one that tox has."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "tox.ini")
    heads = " ".join(config.sections())
    named = {
        name
        for path in (GITHUB, BUILDKITE)
        for name in re.findall(r"gate-[a-z]+\d*(?:-[a-z]+\d+)?\b", path.read_text("utf-8"))
        if not name.startswith("gate-report")
    }

    assert named >= {"gate-ray256-jax07", "gate-ray260-jax010"}
    for name in named:
        parts = name.split("-")[1:]
        assert f"testenv:{name}]" in f"{heads}]".replace(" ", "]") or all(
            re.search(rf"testenv:gate-.*\b{part}\b", heads) for part in parts
        ), name


def test_images_get_what_the_environments_get() -> None:
    """The list for images is the group of tox but for jax and ray."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    wanted = {d for d in [*groups["suite"], *groups["gate"]] if isinstance(d, str)}
    lines = (CI / "requirements.txt").read_text(encoding="utf-8").splitlines()
    listed = {line for line in lines if not line.startswith("#")}

    assert listed == {d for d in wanted if not d.startswith(("jax", "ray"))}


def test_an_interrupted_environment_has_the_time_that_the_gate_takes_to_end() -> None:
    """tox kills nothing before the gate would, so that what ran is told."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "tox.ini")
    names = ("suicide_timeout", "interrupt_timeout", "terminate_timeout")

    times_s = [config.getfloat("testenv", name) for name in names]
    assert sum(times_s) > suite._ENDING_S + 10
