"""What `import jaxiter` loads, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = {"grain", "matplotlib", "pandas", "pyarrow", "pydantic", "ray", "scipy", "torch", "yaml"}
LOADED = """
import jax, json, sys
before = set(sys.modules)
import jaxiter
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_import_loads_nothing_but_jaxiter() -> None:
    """After `import jax`, neither Ray nor pyarrow is loaded, nor anything else that is heavy."""
    # JAX starts no devices: this process only imports.
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    loaded = json.loads(done.stdout)
    packages = {name.partition(".")[0] for name in loaded}

    assert "jaxiter.batches" in loaded
    assert not packages & HEAVY
    # The rest is of the standard library, of JAX, or of numpy, which JAX has loaded.
    assert packages - set(sys.stdlib_module_names) <= {"jax", "jaxiter", "numpy"}
