"""What the pipeline moves batches with: the host stage, padding and placement."""

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import jax

from jaxiter.buffers import Pool
from jaxiter.hostbatch import HostBatch, Memory, host_batches
from jaxiter.options import Options
from jaxiter.packing import Blocks
from jaxiter.padding import padded, padding_only
from jaxiter.pipeline import Loaded, Placed
from jaxiter.placement import Placement, rows_checksum
from jaxiter.schema import Schema, unflatten
from jaxiter.site import Site

# Of all epochs of this process: in a pool of its own, each would have the system map all anew.
_POOL = Pool(64 << 20)


class BatchStages:
    """The stages of one epoch of one process.

    Args:
        open_source: Opens the source for one epoch.
        options: The arguments of `iter_jax_batches`.
        placement: Where batches go.
        process: This process's index.
        x64: Whether JAX holds 64-bit dtypes.
    """

    def __init__(
        self,
        open_source: Callable[[], Iterator[Any]],
        options: Options,
        placement: Placement,
        *,
        process: int,
        x64: bool,
    ) -> None:
        self._open_source = open_source
        self._options = options
        self._placement = placement
        self._process = process
        self._x64 = x64
        self._memory = Memory(_POOL.empty, placement.packs)
        self._replicated = any(len(group) > 1 for group in placement.row_groups)

    def open(self) -> Iterator[Loaded]:
        """See `Stages`."""
        source = self._open_source()
        batches = host_batches(
            source, self._options, self._process, x64=self._x64, memory=self._memory
        )
        checked: Schema | None = None
        text = ""
        for position, batch in enumerate(batches):
            if batch.schema != checked:
                checked = batch.schema
                text = schema_text(checked)
                site = Site(self._process, position)
                self._placement.check(checked, self._options.batch_size, site)
            checksum = rows_checksum(batch.leaves) if self._replicated else None
            yield Loaded(batch, text, batch.rows, batch.nbytes, checksum)

    def place(self, loaded: Loaded, position: int) -> Placed:
        """See `Stages`."""
        batch: HostBatch = loaded.content
        leaves = batch.leaves
        blocks = batch.blocks
        if self._options.pads and batch.rows < self._options.batch_size:
            blocks = {}
            site = Site(self._process, position)
            leaves = padded(leaves, batch.schema, self._options, site)
        return self._placed(leaves, batch.schema, batch.rows, blocks)

    def place_padding(self, schema: str, position: int) -> Placed:
        """See `Stages`."""
        known = schema_of_text(schema)
        leaves = padding_only(known, self._options, Site(self._process, position))
        return self._placed(leaves, known, 0, {})

    def _placed(self, leaves: list[Any], schema: Schema, rows: int, blocks: Blocks) -> Placed:
        # A guard of the consumer's thread is about transfers that the consumer does not know of.
        with jax.transfer_guard_host_to_device("allow"):
            return self._put(leaves, schema, rows, blocks)

    def _put(self, leaves: list[Any], schema: Schema, rows: int, blocks: Blocks) -> Placed:
        nbytes = sum(leaf.nbytes for leaf in leaves)
        groups = self._placement.groups(schema)
        if groups:
            packed = self._placement.put_packed(leaves, groups, blocks)
            return Placed(lambda: unflatten(schema, packed.unpacked()), rows, nbytes)
        batch = unflatten(schema, self._placement.put(leaves))
        return Placed(lambda: batch, rows, nbytes)


def schema_text(schema: Schema) -> str:
    """Return a schema as text: the same on all processes for equal schemas."""
    return json.dumps(schema.to_json(), sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=16)
def schema_of_text(text: str) -> Schema:
    """Return the schema that `schema_text` wrote."""
    return Schema.from_json(json.loads(text))


def schema_words(here: str, there: str, one: str, other: str) -> str:
    """Say in words how two schemas, given as texts, differ."""
    return schema_of_text(here).diff(schema_of_text(there), one, other)
