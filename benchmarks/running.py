"""Runs cells on gangs of processes: one gang a topology and kind of source, kept warm."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.cells import Cell
from benchmarks.contestants import taking_part
from benchmarks.measuring import measure
from benchmarks.works import WORKS
from harness import Gang, Returned
from harness.backends.ray_cluster import enter as enter_cluster

_STALL_S = 60.0
_START_S = 300.0
_STORE_BYTES = 512 << 20
_BLOCK_ROWS = 1024


class CellError(RuntimeError):
    """A cell gave no figures; says what became of each process."""


class Gangs:
    """At most one gang at a time: two would share the cores."""

    def __init__(self) -> None:
        self._key: tuple[str, int, int] | None = None
        self._open = ExitStack()
        self._cluster = ExitStack()

    def run(
        self, cell: Cell, names: Sequence[str], rounds: int, deadline_s: float
    ) -> list[dict[str, Any]]:
        """Measure one cell; what each process returns.

        Raises:
            CellError: A process did not return, or contestants delivered different rows.
        """
        gang = self._gang(cell)
        sources = _ray_sources(cell) if cell.source == "ray" else [None] * cell.processes
        outcomes = gang.run(
            measure,
            cell,
            names,
            rounds,
            per_rank=[(source,) for source in sources],
            deadline_s=deadline_s,
            stall_s=_STALL_S,
        )
        ranks = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
        if len(ranks) < len(outcomes):
            raise CellError("\n".join(outcome.describe() for outcome in outcomes))
        for process, one in enumerate(ranks):
            check_digests(process, one["digests"])
        return ranks

    def _gang(self, cell: Cell) -> Gang:
        key = (cell.source, cell.processes, cell.devices)
        if key != self._key:
            self._open.close()
            if cell.source == "ray" and self._key != key:
                self._cluster.close()
                self._cluster.callback(
                    enter_cluster(cpus=cell.processes + 2, object_store_bytes=_STORE_BYTES)
                )
            gang = Gang(
                cell.processes,
                cell.devices,
                "ray" if cell.source == "ray" else "local",
                start_timeout_s=_START_S,
            )
            self._gang_now = self._open.enter_context(gang)
            self._key = key
        return self._gang_now

    def close(self) -> None:
        """End the processes."""
        self._open.close()
        self._cluster.close()


@contextmanager
def gangs() -> Iterator[Gangs]:
    """Give gangs, and end them."""
    all_gangs = Gangs()
    try:
        yield all_gangs
    finally:
        all_gangs.close()


def contestants_of(cell: Cell, names: Sequence[str]) -> list[str]:
    """Return those of `names` that take part in a cell."""
    return taking_part(names, cell.source, cell.has_step, cell.uneven)


def check_digests(process: int, digests: Sequence[tuple[str, list[Any]]]) -> None:
    """Check that all contestants delivered the same first batches to a process.

    Raises:
        CellError: Names who differs from whom, and where.
    """
    (first, wanted), *others = digests
    for name, seen in others:
        for k, (one, other) in enumerate(zip(wanted, seen, strict=False)):
            # A cast may round: each does it in its own way.
            if any(abs(a - b) > 0.02 * abs(a) for a, b in zip(one, other, strict=True)):
                raise CellError(
                    f"process {process}: {name} and {first} delivered different rows in batch {k}: "
                    f"digests {other} and {one}"
                )


def _ray_sources(cell: Cell) -> list[Any]:
    """Return a dataset a process: blocks in the object store, some of them many times over."""
    import pyarrow as pa
    import ray
    from ray.data.extensions import ArrowTensorArray

    work = WORKS[cell.work]
    size = work.batch_size
    block = max(1, min(_BLOCK_ROWS // size, 4)) * size

    def table(first: int, rows: int) -> Any:
        columns = {
            name: ArrowTensorArray.from_numpy(column) if column.ndim > 1 else pa.array(column)
            for name, column in work.make(first, rows).items()
        }
        return pa.table(columns)

    sources = []
    for process in range(cell.processes):
        rows = cell.rows_of(process, size)
        first = process * 1_000_003
        made = [ray.put(table(first + k * block, block)) for k in range(min(4, rows // block))]
        refs = [made[k % len(made)] for k in range(rows // block)]
        if rows % block:
            refs.append(ray.put(table(first + rows // block * block, rows % block)))
        sources.append(ray.data.from_arrow_refs(refs))
    return sources
