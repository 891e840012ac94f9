"""Shardings: which rows a process reads, and how its rows become part of a global array.

Nothing here runs a collective or a computation across processes: each process puts its own rows on
its own devices. `jax.device_put` to a global sharding would do both, hidden.
"""

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from jaxiter import packing
from jaxiter.casting import x64_enabled
from jaxiter.errors import OptionError
from jaxiter.options import Options
from jaxiter.packing import Blocks, Groups, Unpack
from jaxiter.putting import Index, Layout, Put, best_put
from jaxiter.schema import Schema
from jaxiter.site import Site


@dataclass(frozen=True)
class RowSplit:
    """How a sharding splits rows between processes. Pure: devices and processes are numbers.

    Attributes:
        groups: Processes that hold the same rows, in the order of their first row. Process p of
            group i reads split i of `count`.
        shards: Row shards of one process: `batch_size` is a multiple of it.
    """

    groups: tuple[tuple[int, ...], ...]
    shards: int

    @property
    def count(self) -> int:
        """Into how many splits the rows of an epoch are divided."""
        return len(self.groups)

    def index(self, process: int) -> int:
        """Return which split `process` reads."""
        return next(i for i, group in enumerate(self.groups) if process in group)


def split_rows(intervals: dict[int, set[tuple[int, int]]], rows: int) -> RowSplit:
    """Work out which processes read which rows.

    Args:
        intervals: For each process the intervals (start, stop) of rows that its devices hold.
        rows: How many there are in all.

    Returns:
        The groups of processes and the row shards of each.

    Raises:
        ValueError: A process holds no rows, or row shards or the rows of two processes overlap
            partly or are of unequal number; says which.
    """
    shards = sorted(set().union(*intervals.values()))
    sizes = {stop - start for start, stop in shards}
    if len(sizes) != 1 or len(shards) * sizes.pop() != rows:
        raise ValueError(f"it splits rows into shards of unequal size: {shards} of {rows} rows")
    groups: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for process in sorted(intervals):
        groups.setdefault(tuple(sorted(intervals[process])), []).append(process)
    held = sorted(groups)
    if not held[0]:
        raise ValueError(f"process {groups[held[0]][0]} has no device in it")
    owner: dict[tuple[int, int], int] = {}
    for own in held:
        for shard in own:
            if shard in owner:
                raise ValueError(
                    f"processes {owner[shard]} and {groups[own][0]} hold some of the same "
                    "rows, but not all; the rows of two processes must be the same or disjoint"
                )
            owner[shard] = groups[own][0]
        if len(own) != len(held[0]):
            raise ValueError(
                f"process {groups[held[0]][0]} holds {len(held[0])} row shards, process "
                f"{groups[own][0]} holds {len(own)}; all processes must hold as many"
            )
    return RowSplit(tuple(tuple(groups[own]) for own in held), len(held[0]))


def default_sharding() -> NamedSharding:
    """Return Ray's: all devices along one axis `data`, in the order that suits their network."""
    try:
        devices = mesh_utils.create_device_mesh((jax.device_count(),))
    except Exception:  # noqa: BLE001  # whatever it is, Ray falls back to this, and so the same mesh
        devices = np.array(jax.devices())
    spec = PartitionSpec("data")
    return NamedSharding(Mesh(devices, ("data",)), spec)


def row_shard(sharding: Sharding | None = None) -> tuple[int, int]:
    """Return (index, count): of `count` splits of the rows, this process reads the one at `index`.

    Processes that hold the same rows get the same index, and must read the same rows in the same
    order. Without a `sharding`, each process has rows of its own.

    Raises:
        OptionError: The sharding does not split rows between processes as the iterator needs it.
    """
    split = _row_split(default_sharding() if sharding is None else sharding)
    return split.index(jax.process_index()), split.count


class Placement:
    """Puts host batches on this process's devices as parts of global arrays.

    Attributes:
        sharding: Of every array.
        split: Which processes read which rows.
    """

    def __init__(self, options: Options, *, x64: bool | None = None) -> None:
        """Check the sharding.

        Args:
            options: With `batch_size` and `sharding`.
            x64: Whether JAX holds 64-bit dtypes; None: as set for the thread that calls.

        Raises:
            OptionError: The sharding does not split rows as the iterator needs it, or `batch_size`
                is no multiple of the row shards of one process.
        """
        self.sharding = default_sharding() if options.sharding is None else options.sharding
        self.split = _row_split(self.sharding)
        self._options = options
        self._x64 = x64_enabled() if x64 is None else x64
        self._puts: dict[tuple[tuple[int, ...], np.dtype[Any], int], Put] = {}
        self._grouped: tuple[Schema | None, Groups] = (None, ())
        self._block_sharding = (
            packing.block_sharding(self.sharding) if options.synchronize_batches else None
        )
        if options.batch_size % self.split.shards:
            raise OptionError(
                f"batch_size must be a multiple of the {self.split.shards} row shards that each "
                f"process has under {self.sharding}; got {options.batch_size}.",
                argument="batch_size",
                value=options.batch_size,
            )

    @property
    def row_groups(self) -> tuple[tuple[int, ...], ...]:
        """Processes that read the same rows; in the order of the splits they read."""
        return self.split.groups

    @property
    def row_shard(self) -> tuple[int, int]:
        """Which split this process reads, of how many."""
        return self.split.index(jax.process_index()), self.split.count

    def describe(self) -> Any:
        """Return a JSON value that is equal on two processes if and only if their shardings are."""
        return describe_sharding(self.sharding)

    def check(self, schema: Schema, rows: int, site: Site) -> None:
        """Check that `put` can place a batch.

        Args:
            schema: Of the batch.
            rows: Its rows when it is placed, padding counted.
            site: Named in errors.

        Raises:
            DataError: The rows do not divide by the row shards, or a column has not the dimensions
                that the sharding splits.
        """
        if rows % self.split.shards:
            raise site.error(
                None,
                f"its {rows} rows do not divide by the {self.split.shards} row shards of a "
                "process. Set `drop_last=True`, or fill it up with `paddings`.",
            )
        for column in schema.columns:
            shape = (rows * self.split.count, *column.shape)
            reason = self._misfit(shape)
            if reason:
                raise site.error(
                    column.name,
                    f"arrays of shape {shape} cannot have the sharding asked for: {reason}. Change "
                    "the sharding, or the shape of the column.",
                )

    def _misfit(self, shape: tuple[int, ...]) -> str:
        """Say why arrays of `shape` cannot have the sharding; empty if they can."""
        if isinstance(self.sharding, NamedSharding) and len(self.sharding.spec) > len(shape):
            return f"{self.sharding.spec} is for {len(self.sharding.spec)} dimensions or more"
        try:
            self.sharding.shard_shape(shape)
        except ValueError as error:
            return str(error)
        return ""

    @property
    def packs(self) -> bool:
        """Whether wide tables go to the devices in blocks.

        Not where processes are on their own: to take a block apart is a computation over all
        devices, which all processes must launch.
        """
        return self._block_sharding is not None

    def groups(self, schema: Schema) -> Groups:
        """Return which columns go to the devices in a block, for each block."""
        if not self.packs:
            return ()
        known, found = self._grouped
        if schema is not known:
            kinds = [(column.np_dtype, 1 + len(column.shape)) for column in schema.columns]
            found = packing.groups(kinds, self._options.batch_size)
            self._grouped = schema, found
        return found

    def put_packed(self, leaves: Sequence[np.ndarray], groups: Groups, blocks: Blocks) -> "Packed":
        """Place the rows of this process, some columns in blocks.

        Args:
            leaves: As `put` takes them.
            groups: Which columns are in a block.
            blocks: Arrays of shape (columns, rows) that some columns are rows of, by positions.

        Returns:
            What gives all columns, as `put` returns them, when it is called.
        """
        assert self._block_sharding is not None
        placed: list[jax.Array | None] = [None] * len(leaves)
        parts = []
        with _x64_set(self._x64):
            for positions in groups:
                block = blocks.get(positions)
                if block is None:
                    block = np.stack([leaves[position] for position in positions])
                array = self._put_of(block, self._block_sharding)(block)
                assert isinstance(self.sharding, NamedSharding)
                unpack = packing.unpacker(self.sharding, array.shape, block.dtype)
                parts.append((array, unpack, positions))
            together = {position for positions in groups for position in positions}
            for position, leaf in enumerate(leaves):
                if position not in together:
                    placed[position] = self._put_of(leaf, self.sharding)(leaf)
        return Packed(placed, parts)

    def put(self, leaves: Sequence[np.ndarray]) -> list[jax.Array]:
        """Place the rows of this process.

        Runs no collective and no computation across processes, and may be called from any thread.
        The host arrays may be used in place: nobody may write to them afterwards.

        Args:
            leaves: Arrays of shape (rows, *trailing), in dtypes that JAX holds; `rows` the same on
                all processes.

        Returns:
            For each a global array of shape (rows * count, *trailing), `count` splits.
        """
        with _x64_set(self._x64):
            return [self._put_of(leaf, self.sharding)(leaf) for leaf in leaves]

    def _put_of(self, leaf: np.ndarray, sharding: Sharding) -> Put:
        rows_at = int(sharding is self._block_sharding)  # the dimension that holds the rows
        key = (leaf.shape, leaf.dtype, rows_at)
        put = self._puts.get(key)
        if put is None:
            layout = layout_of(sharding, self.split.count, leaf.shape, rows_at)
            put = self._puts[key] = best_put()(layout, leaf.dtype)
        return put


class Packed(NamedTuple):
    """Columns on devices, some of them in blocks.

    Attributes:
        placed: One a column; None where it lies in a block.
        blocks: Blocks, what takes each apart, and the columns that come out.
    """

    placed: list[jax.Array | None]
    blocks: list[tuple[jax.Array, Unpack, tuple[int, ...]]]

    def unpacked(self) -> list[jax.Array]:
        """Return one global array a column; a computation over all devices."""
        columns = list(self.placed)
        for block, unpack, positions in self.blocks:
            for position, column in zip(positions, unpack(block), strict=True):
                columns[position] = column
        return [column for column in columns if column is not None]


def layout_of(sharding: Sharding, count: int, local: tuple[int, ...], rows_at: int = 0) -> Layout:
    """Return where rows go.

    Args:
        sharding: Of the global array.
        count: Into how many splits its rows are divided.
        local: Shape of one process's rows.
        rows_at: Which dimension the rows are along.

    Raises:
        ValueError: Arrays of this shape cannot have this sharding.
    """
    shape = (*local[:rows_at], local[rows_at] * count, *local[rows_at + 1 :])
    indices = sharding.addressable_devices_indices_map(shape)
    starts = sorted({_interval(index, shape, rows_at)[0] for index in indices.values()})
    height = local[rows_at] // len(starts)
    firsts = {start: i * height for i, start in enumerate(starts)}

    def local_part(index: Index | None) -> Index:
        assert index is not None  # JAX asks for addressable parts alone
        start = firsts[index[rows_at].start or 0]
        return *index[:rows_at], slice(start, start + height), *index[rows_at + 1 :]

    parts = [local_part(index) for index in indices.values()]
    return Layout(shape, sharding, list(indices), parts, local_part)


def held_rows(
    sharding: Sharding, process_of: Callable[[jax.Device], int]
) -> tuple[dict[int, set[tuple[int, int]]], int]:
    """Return the intervals of rows that each process holds of some number of rows, and that number.

    Args:
        sharding: Splits rows, the first dimension, and maybe more dimensions.
        process_of: The process that has a device.

    Raises:
        ValueError: Not a NamedSharding, and not for arrays of one dimension.
    """
    # Any number of shards along a dimension divides the number of devices.
    rows = len(sharding.device_set)
    spec = sharding.spec if isinstance(sharding, NamedSharding) else ()
    held: dict[int, set[tuple[int, int]]] = {}
    for device, index in sharding.devices_indices_map((rows,) * max(1, len(spec))).items():
        held.setdefault(process_of(device), set()).add(_interval(index, (rows,)))
    return held, rows


def _row_split(sharding: Sharding) -> RowSplit:
    try:
        held, rows = held_rows(sharding, lambda device: int(device.process_index))
        return split_rows({process: set() for process in range(jax.process_count())} | held, rows)
    except ValueError as error:
        raise OptionError(
            "sharding must split rows, the first dimension, evenly between all processes, but of "
            f"{sharding} this is so: {error}.",
            argument="sharding",
            value=sharding,
        ) from error


def describe_sharding(sharding: Sharding | None) -> Any:
    """Return a JSON value: equal for two shardings if and only if they are. None is the default."""
    if sharding is None:
        sharding = default_sharding()
    if not isinstance(sharding, NamedSharding):
        return {"sharding": repr(sharding), "devices": _ids(list(sharding.device_set))}
    mesh = sharding.mesh
    spec = [list(entry) if isinstance(entry, tuple) else entry for entry in _trimmed(sharding.spec)]
    return {
        "mesh": dict(zip(mesh.axis_names, mesh.devices.shape, strict=True)),
        "axis_types": [str(kind) for kind in getattr(mesh, "axis_types", None) or ()],
        "spec": spec,
        "devices": _ids(mesh.devices.ravel().tolist()),
        "memory_kind": sharding.memory_kind,
    }


def _trimmed(spec: PartitionSpec) -> list[Any]:
    entries = list(spec)
    while entries and entries[-1] is None:
        entries.pop()
    return [
        entry[0] if isinstance(entry, tuple) and len(entry) == 1 else entry for entry in entries
    ]


def _ids(devices: list[Any]) -> Any:
    ids = [int(device.id) for device in devices]
    if len(ids) <= 64:
        return ids
    return f"{len(ids)} devices, sha256 {hashlib.sha256(repr(ids).encode()).hexdigest()}"


def _interval(index: Index | None, shape: tuple[int, ...], rows_at: int = 0) -> tuple[int, int]:
    rows = shape[rows_at]
    start, stop, _ = index[rows_at].indices(rows) if index else (0, rows, 1)
    return start, stop


def rows_checksum(leaves: Sequence[np.ndarray]) -> str:
    """Return a digest of all values: equal for processes that read the same rows.

    Args:
        leaves: C-contiguous arrays, real rows alone.
    """
    digest = hashlib.blake2b(digest_size=8)
    for leaf in leaves:
        digest.update(f"{leaf.dtype.name}{leaf.shape}".encode())
        if leaf.size:
            digest.update(leaf.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _x64_set(enabled: bool) -> AbstractContextManager[Any]:
    """Return a context in which puts of this thread keep 64-bit dtypes, or narrow them."""
    if x64_enabled() == enabled:
        return contextlib.nullcontext()
    owner: Any = jax if hasattr(jax, "enable_x64") else jax.experimental  # moved in jax 0.8
    context: AbstractContextManager[Any] = owner.enable_x64(enabled)
    return context
