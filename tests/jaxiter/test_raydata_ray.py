"""Tests of jaxiter.raydata on Ray datasets and their shards."""

import datetime
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.data.collate_fn import ArrowBatchCollateFn, NumpyBatchCollateFn, PandasBatchCollateFn

from jaxiter import raydata
from jaxiter.errors import DataError, OptionError
from jaxiter.hostbatch import HostBatch, host_batches
from jaxiter.options import make_options
from jaxiter.raydata import is_ray_source, open_source
from jaxiter.schema import unflatten

ROWS = 23
# Ray warns of its own use of what it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A local Ray of this module's own."""
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    assert not ray.is_initialized()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True  # else blocks come as their tasks finish
    yield
    ray.shutdown()


def dataset(blocks: int = 3) -> Any:
    """Return ids 0 to 22 in some blocks, with a column of vectors and one of bools."""

    def widen(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        ids = batch["id"]
        vectors = np.stack([ids, ids * 0.5], axis=1).astype(np.float32)
        return {"id": ids, "vector": vectors, "even": ids % 2 == 0}

    return ray.data.range(ROWS, override_num_blocks=blocks).map_batches(widen)


def run(source: Any, **arguments: Any) -> list[HostBatch]:
    """Return the host batches of a Ray source."""
    options = make_options(**arguments)
    return list(host_batches(open_source(source, options)(), options, 0))


def column(batches: list[HostBatch], name: str) -> list[Any]:
    """Return all values of a column."""
    trees = [unflatten(batch.schema, batch.leaves) for batch in batches]
    return [value for tree in trees for value in tree[name].tolist()]


@pytest.fixture(scope="module")
def rows() -> Any:
    """The dataset, computed once."""
    return dataset().materialize()


@pytest.mark.parametrize("make", [lambda ds: ds, lambda ds: ds.iterator()], ids=["ds", "iterator"])
def test_a_dataset_is_read_in_batches_of_the_size_asked_for(rows: Any, make: Any) -> None:
    """All rows come in order in full batches; dtypes and shapes are the dataset's."""
    source = make(rows)
    assert is_ray_source(source)

    batches = run(source, batch_size=4)

    assert [batch.rows for batch in batches] == [4, 4, 4, 4, 4, 3]
    assert column(batches, "id") == list(range(ROWS))
    assert column(batches, "vector") == [[i, i * 0.5] for i in range(ROWS)]
    assert column(batches, "even") == [i % 2 == 0 for i in range(ROWS)]


def test_each_epoch_reads_the_dataset_again(rows: Any) -> None:
    """The same opener serves several epochs."""
    options = make_options(batch_size=8)
    opened = open_source(rows, options)

    epochs = [column(list(host_batches(opened(), options, 0)), "id") for _ in range(2)]

    assert epochs == [list(range(ROWS))] * 2


def test_the_shards_of_a_streaming_split_are_sources() -> None:
    """Between them the shards of a split deliver each row once."""
    shards = dataset().streaming_split(1)
    assert is_ray_source(shards[0])

    batches = run(shards[0], batch_size=8)

    assert sorted(column(batches, "id")) == list(range(ROWS))
    assert [batch.rows for batch in batches] == [8, 8, 7]


@pytest.mark.parametrize("buffer_size", [8, 16])
def test_a_local_shuffle_gives_full_batches(buffer_size: int) -> None:
    """Only the last batch is short, although Ray emits short ones mid-stream; no row is lost."""
    source = ray.data.from_blocks([_frame(0, 30), _frame(30, 40)]).materialize()
    emitted = [
        len(batch["id"])
        for batch in source.iter_batches(
            batch_size=8, local_shuffle_buffer_size=buffer_size, local_shuffle_seed=0
        )
    ]

    batches = run(source, batch_size=8, local_shuffle_buffer_size=buffer_size, local_shuffle_seed=0)

    assert [batch.rows for batch in batches] == [8] * 5
    ids = column(batches, "id")
    assert sorted(ids) == list(range(40))
    assert ids != list(range(40))
    if buffer_size == 8:
        assert sorted(emitted) != [8] * 5, "Ray no longer emits short batches: drop this case"


def _frame(start: int, stop: int) -> Any:
    import pandas as pd

    return pd.DataFrame({"id": np.arange(start, stop)})


class Arrow(ArrowBatchCollateFn):  # type: ignore[misc]  # Ray has no types
    """Takes Arrow tables."""

    def __call__(self, batch: Any) -> Any:
        """Return the ids, and how many rows and which type came in."""
        rows = batch.num_rows
        return {"id": batch["id"].to_numpy(), "seen": np.full(rows, rows)}


class Numpy(NumpyBatchCollateFn):  # type: ignore[misc]  # Ray has no types
    """Takes dicts of arrays."""

    def __call__(self, batch: Any) -> Any:
        """Return the ids, and how many rows and which type came in."""
        rows = len(batch["id"])
        return {"id": batch["id"], "seen": np.full(rows, rows)}


class Pandas(PandasBatchCollateFn):  # type: ignore[misc]  # Ray has no types
    """Takes frames."""

    def __call__(self, batch: Any) -> Any:
        """Return the ids, and how many rows and which type came in."""
        assert batch.index.tolist() == list(range(len(batch)))
        return {"id": batch["id"].to_numpy(), "seen": np.full(len(batch), len(batch))}


@pytest.mark.parametrize("collate_fn", [Arrow(), Numpy(), Pandas()])
@pytest.mark.parametrize("shuffle", [None, 8])
def test_the_class_of_a_collate_function_decides_the_format(
    rows: Any, collate_fn: Any, shuffle: Any
) -> None:
    """Each of Ray's kinds gets full batches in its own format."""
    batches = run(
        rows,
        batch_size=5,
        collate_fn=collate_fn,
        local_shuffle_buffer_size=shuffle,
        local_shuffle_seed=None if shuffle is None else 1,
    )

    assert sorted(column(batches, "id")) == list(range(ROWS))
    assert column(batches, "seen") == [5] * 20 + [3] * 3


def test_a_plain_collate_function_is_refused_as_ray_does(rows: Any) -> None:
    """For a Ray source the function must be of one of Ray's kinds; others say which."""
    with pytest.raises(OptionError, match="NumpyBatchCollateFn") as caught:
        open_source(rows, make_options(collate_fn=dict))

    assert isinstance(caught.value, ValueError)
    assert caught.value.argument == "collate_fn"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["a", "b"], "text"),
        ([[1], [1, 2]], "unequal length"),
        ([{"k": 1}, {"k": 2}], "Python objects"),
        ([datetime.datetime(2020, 1, day) for day in (1, 2)], "dates"),
        ([np.zeros((1, 2)), np.zeros((2, 2))], "unequal length"),
        ([2**31, 0], "2147483648"),
    ],
)
def test_a_column_of_a_dataset_that_jax_cannot_hold_is_named(values: Any, words: str) -> None:
    """Text, ragged lists, dates and wide integers raise an error that names the column."""
    source = ray.data.from_items([{"good": 1, "bad": value} for value in values])

    with pytest.raises(DataError, match=words) as caught:
        run(source, batch_size=2)

    assert caught.value.column == "bad"


def test_closing_early_ends_the_read() -> None:
    """After a close in mid-epoch a new epoch is whole."""
    source = dataset(blocks=6)
    options = make_options(batch_size=2)
    opened = open_source(source, options)
    batches: Any = host_batches(opened(), options, 0)
    next(batches)

    batches.close()

    assert column(list(host_batches(opened(), options, 0)), "id") == list(range(ROWS))


@pytest.fixture
def installed() -> Iterator[None]:
    """jaxiter behind Ray's method names."""
    raydata.install()
    yield
    raydata.uninstall()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("make", [lambda ds: ds, lambda ds: ds.iterator()], ids=["ds", "iterator"])
def test_rays_own_methods_give_batches_of_jaxiter(rows: Any, make: Any) -> None:
    """After install() Ray's methods pad, and return an iterator that next() works on."""
    batches = make(rows).iter_jax_batches(batch_size=8, paddings={"id": -1, "vector": 0, "even": 0})

    first = next(batches)
    rest = list(batches)

    assert first["id"].tolist() == list(range(8))
    assert [batch["id"].tolist() for batch in rest] == [[*range(8, 16)], [*range(16, ROWS), -1]]
    assert list(batches) == []


@pytest.mark.usefixtures("installed")
def test_rays_own_methods_take_the_arguments_of_jaxiter(rows: Any) -> None:
    """A mask column can be asked for by Ray's method name; a wrong argument raises at the call."""
    (*_, last) = rows.iter_jax_batches(batch_size=8, paddings=0, mask_column="real")

    assert last["real"].tolist() == [True] * 7 + [False]
    with pytest.raises(OptionError, match="batch_size"):
        rows.iter_jax_batches(batch_size=0)
    with pytest.raises(TypeError, match="no_such"):
        rows.iter_jax_batches(no_such=1)


@pytest.mark.usefixtures("installed")
def test_what_is_closed_before_its_epoch_reads_nothing(tmp_path: Path) -> None:
    """An epoch that is closed before it begins reads nothing, and has no batches."""
    trace = tmp_path / "read"
    touched = ray.data.range(4).map_batches(_Touch(str(trace)))
    batches = touched.iter_jax_batches(batch_size=8)

    batches.close()

    assert list(batches) == []
    assert not trace.exists()


@pytest.mark.usefixtures("installed")
def test_an_epoch_begins_when_a_loop_does(rows: Any) -> None:
    """iter() alone begins the epoch, so that a loop that is left before its first batch counts."""
    batches = rows.iter_jax_batches(batch_size=8, paddings=0)
    before = batches.stats()

    iter(batches)

    assert before == ()
    assert len(batches.stats()) == 1
    batches.close()


@pytest.mark.usefixtures("installed")
def test_the_books_of_an_epoch_by_rays_method_name(rows: Any) -> None:
    """After install() an epoch has its ledger."""
    batches = rows.iter_jax_batches(batch_size=8, paddings=0)

    delivered = list(batches)

    (stats,) = batches.stats()
    assert (stats.batches_delivered, stats.rows_read, stats.rows_delivered) == (3, ROWS, ROWS)
    assert len(delivered) == 3


class _Touch:
    """Leaves a file where a block is read."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, batch: Any) -> Any:
        Path(self._path).touch()
        return batch


def test_uninstall_gives_ray_its_methods_back() -> None:
    """install() may be called twice; after uninstall() the classes are as they were."""
    classes = (ray.data.Dataset, ray.data.DataIterator)
    before = [cls.__dict__["iter_jax_batches"] for cls in classes]

    raydata.install()
    raydata.install()
    during = [cls.__dict__["iter_jax_batches"] for cls in classes]
    raydata.uninstall()
    raydata.uninstall()

    assert [cls.__dict__["iter_jax_batches"] for cls in classes] == before
    assert not set(during) & set(before)
