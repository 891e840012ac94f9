"""Tests of jaxiter.raydata: sources that are not Ray's."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from jaxiter.errors import OptionError, SourceUsedError
from jaxiter.options import make_options
from jaxiter.raydata import open_source

BATCHES = [np.arange(2), np.arange(3)]


def generator() -> Any:
    """Yield the batches; each call yields them anew."""
    yield from BATCHES


def sizes(opened: Any) -> list[int]:
    """Return the sizes of the batches of one epoch."""
    return [len(batch) for batch in opened()]


@pytest.mark.parametrize(
    "source",
    [BATCHES, tuple(BATCHES), generator, lambda: BATCHES, lambda: iter(BATCHES)],
    ids=["list", "tuple", "generator function", "function of a list", "function of an iterator"],
)
def test_an_iterable_or_a_function_is_read_anew_each_epoch(source: Any) -> None:
    """Every epoch sees all batches."""
    opened = open_source(source, make_options())

    assert [sizes(opened) for _ in range(3)] == [[2, 3]] * 3


def test_an_iterator_serves_one_epoch() -> None:
    """The second epoch of an iterator raises, and says what to pass instead."""
    opened = open_source(generator(), make_options())

    assert sizes(opened) == [2, 3]
    with pytest.raises(SourceUsedError, match="pass an iterable, or a function"):
        opened()


def test_a_source_is_not_touched_before_it_is_opened() -> None:
    """Opening is what calls the function or the iterable."""
    calls = []

    def source() -> Any:
        calls.append(True)
        return BATCHES

    opened = open_source(source, make_options())

    assert calls == []
    opened()
    assert calls == [True]


@pytest.mark.parametrize(
    "source", [{"x": np.zeros(2)}, np.zeros(2), "batches", b"batches", 3, None, object()]
)
def test_what_is_no_source_is_refused(source: Any) -> None:
    """One batch alone, text, or something that cannot be iterated raises a TypeError."""
    with pytest.raises(TypeError, match="source"):
        open_source(source, make_options())


def test_a_local_shuffle_is_rays() -> None:
    """Other sources shuffle by themselves; the option is refused, not passed over."""
    with pytest.raises(OptionError, match="needs a Ray Dataset") as caught:
        open_source(BATCHES, make_options(local_shuffle_buffer_size=5))

    assert caught.value.argument == "local_shuffle_buffer_size"


def test_ray_is_not_needed() -> None:
    """Where Ray cannot be imported, other sources work, and nothing tries to import it."""
    script = """
import sys
for name in ("ray", "pyarrow", "pandas"):
    sys.modules[name] = None
import numpy as np
from jaxiter.hostbatch import host_batches
from jaxiter.options import make_options
from jaxiter.placement import Placement
from jaxiter.raydata import open_source, uninstall
options = make_options(batch_size=2)
source = open_source([{"x": np.arange(3)}], options)
rows = [batch.rows for batch in host_batches(source(), options, 0)]
uninstall()
print(rows)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout == "[2, 1]\n", done.stderr
