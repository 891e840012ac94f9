"""The host stage, in numpy: what a source emits -> batches of final size, structure and dtypes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxiter import packing, trees
from jaxiter.buffers import Empty, aligned_empty
from jaxiter.casting import assemble, assemble_block, final_dtype, x64_enabled
from jaxiter.options import Options
from jaxiter.padding import check_padding
from jaxiter.rebatch import Piece, TreePiece, join, rebatch, same_columns
from jaxiter.schema import Schema, schema_of
from jaxiter.site import Site


class Memory(NamedTuple):
    """Where rows are copied to.

    Attributes:
        empty: Makes an array to copy into.
        packs: Whether scalar columns of a dtype, where there are many, lie in one block.
    """

    empty: Empty
    packs: bool = False


@dataclass(frozen=True)
class HostBatch:
    """Rows of one process, ready to be put on its devices.

    Attributes:
        leaves: One C-contiguous array of shape (rows, *trailing) a column, of its final dtype, in
            the order of `schema.columns`. Nobody writes to their memory again.
        schema: Of these leaves; the mask column is one of them.
        rows: Real rows, 1 to `batch_size`.
        blocks: Arrays of shape (columns, rows) that some leaves are rows of, by their positions.
    """

    leaves: list[np.ndarray]
    schema: Schema
    rows: int
    blocks: packing.Blocks = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves."""
        return sum(leaf.nbytes for leaf in self.leaves)


def host_batches(
    source: Iterator[Any],
    options: Options,
    process: int,
    *,
    x64: bool | None = None,
    memory: Memory | None = None,
) -> Iterator[HostBatch]:
    """Turn what `source` emits into batches of `batch_size` rows, the last one shorter.

    Stages, in this order: rebatch, collate, check of rows, cast, mask, check of the schema. Nothing
    is padded or dropped here. Closing the result closes the source.

    Args:
        source: Emits trees of arrays, Arrow tables or pandas frames.
        options: The arguments of `iter_jax_batches`.
        process: This process's index, named in errors.
        x64: Whether JAX holds 64-bit dtypes; None: as set for the thread that calls.
        memory: Where rows are copied to; None: fresh memory a column.

    Returns:
        The batches. Structure and dtypes are the same in all; trailing shapes may change.

    Raises:
        DataError: From `next`: the data of a batch cannot be delivered unchanged, or `dtypes`,
            `paddings` or `mask_column` do not fit its columns. Names column, process and batch.
        Exception: From `next`: whatever the source or `collate_fn` raises, as it is.
    """
    if x64 is None:
        x64 = x64_enabled()
    return _batches(source, options, process, x64, memory or Memory(aligned_empty))


def _batches(
    source: Iterator[Any], options: Options, process: int, x64: bool, memory: Memory
) -> Iterator[HostBatch]:
    last: Schema | None = None
    known: tuple[Any, ...] = ()
    assembled = _Assembly(options, x64, memory)
    checked: trees.Node | None = None
    try:
        for index, pieces in enumerate(rebatch(source, options.batch_size, process)):
            site = Site(process, index)
            parts = _collated(pieces, options, site)
            tree = parts[0].tree
            if tree is not checked and tree != checked:
                _check_names("dtypes", options.dtypes, tree.column_names, site)
                checked = tree
            leaves, blocks = assembled(parts, site)
            rows = len(leaves[0])
            if options.mask_column is not None:
                tree, leaves = _with_mask(tree, leaves, options.mask_column, rows, site)
                mask_at = tree.column_names.index(options.mask_column)
                blocks = {
                    tuple(position + (position >= mask_at) for position in positions): block
                    for positions, block in blocks.items()
                }
            columns = [leaf.dtype for leaf in leaves], [leaf.shape[1:] for leaf in leaves]
            if last is None or tree != last.tree or columns != known:
                schema = schema_of(tree, leaves, site)
                if schema != last:
                    _check_schema(schema, last, options, site)
                    last = schema
                known = columns
            assert last is not None
            yield HostBatch(leaves, last, rows, blocks)
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()


def _collated(pieces: list[Piece], options: Options, site: Site) -> list[TreePiece]:
    """Return the pieces of one batch as trees of arrays; a collate function makes one of them."""
    if options.collate_fn is not None:
        given = sum(piece.rows for piece in pieces)
        collated = TreePiece.of(options.collate_fn(join(pieces, site)), site)
        if collated.arrays and collated.rows != given:
            raise site.error(
                next(collated.tree.names()),
                f"collate_fn returned {collated.rows} rows for {given}. It must return each row; "
                "short batches are filled up by `paddings`.",
            )
        parts = [collated]
    else:
        parts = [piece for piece in pieces if isinstance(piece, TreePiece)]
        if len(parts) < len(pieces):
            raise site.error(
                None,
                "the source emits tables; without a collate_fn it must emit numpy arrays "
                "(dict[str, np.ndarray] or one np.ndarray).",
            )
        same_columns(parts, site)
    if not parts[0].arrays:
        raise site.error(None, "it has no columns.")
    return parts


class _Assembly:
    """Joins pieces to columns of their final dtypes.

    What is to be done with each column is worked out once, for as long as pieces look the same.
    """

    def __init__(self, options: Options, x64: bool, memory: Memory) -> None:
        self._options = options
        self._x64 = x64
        self._memory = memory
        self._seen: tuple[Any, ...] = ()
        self._dtypes: list[np.dtype[Any]] = []
        self._groups: packing.Groups = ()

    def __call__(
        self, parts: list[TreePiece], site: Site
    ) -> tuple[list[np.ndarray], packing.Blocks]:
        """Return the columns of a batch, and the blocks that some of them lie in."""
        columns = [[part.arrays[i] for part in parts] for i in range(len(parts[0].arrays))]
        names = parts[0].tree.column_names
        looks = (
            parts[0].tree,
            [[array.dtype for array in part.arrays] for part in parts],
            [[array.ndim for array in part.arrays] for part in parts],
        )
        if looks != self._seen:
            self._plan(columns, names, site)
            self._seen = looks
        rows = sum(part.rows for part in parts)
        blocks = {}
        places: dict[int, np.ndarray] = {}
        for positions in self._groups:
            block = self._memory.empty((len(positions), rows), self._dtypes[positions[0]])
            assemble_block(
                [columns[position] for position in positions],
                block,
                [names[position] for position in positions],
                site,
            )
            blocks[positions] = block
            places.update(zip(positions, block, strict=True))
        leaves = [
            places[position]
            if position in places
            else assemble(arrays, dtype, names[position], site, self._memory.empty)
            for position, (arrays, dtype) in enumerate(zip(columns, self._dtypes, strict=True))
        ]
        return leaves, blocks

    def _plan(self, columns: Sequence[list[np.ndarray]], names: Sequence[str], site: Site) -> None:
        """Work out the final dtypes, and which columns are joined in a block."""
        dtypes = []
        for name, arrays in zip(names, columns, strict=True):
            wanted = _for_column(self._options.dtypes, name)
            targets = [final_dtype(array.dtype, wanted, self._x64, name, site) for array in arrays]
            if len(targets) > 1 and len(set(targets)) > 1:
                raise site.error(
                    name,
                    f"rows of dtype {' and '.join(sorted(map(str, set(targets))))} meet in one "
                    "batch. Set `dtypes`, or give the column one dtype in the source.",
                )
            dtypes.append(targets[0])
        groups: packing.Groups = ()
        if self._memory.packs:
            kinds = [(d, arrays[0].ndim) for d, arrays in zip(dtypes, columns, strict=True)]
            # Those that come in several dtypes are put together later.
            groups = [
                positions
                for positions in packing.groups(kinds, self._options.batch_size)
                if len({(array.dtype, array.ndim) for at in positions for array in columns[at]})
                == 1
            ]
        self._dtypes, self._groups = dtypes, groups


def _with_mask(
    tree: trees.Node, leaves: list[np.ndarray], mask_column: str, rows: int, site: Site
) -> tuple[trees.Node, list[np.ndarray]]:
    if tree.kind != "dict":
        raise site.error(
            mask_column,
            f"mask_column adds a column to a dict of columns, but a batch is "
            f"{'one array' if tree.kind == 'leaf' else f'a {tree.kind}'}. "
            "Return a dict from collate_fn, or leave out mask_column.",
        )
    if mask_column in tree.keys:
        raise site.error(
            mask_column, "mask_column is the name of a column that is there. Choose another name."
        )
    return trees.with_key(tree, leaves, mask_column, np.ones(rows, np.bool_))


def _check_schema(schema: Schema, last: Schema | None, options: Options, site: Site) -> None:
    """Check a schema when it first appears, and after a change of trailing shapes."""
    if last is not None and (
        schema.tree != last.tree
        or [column.dtype for column in schema.columns] != [column.dtype for column in last.columns]
    ):
        difference = last.diff(schema, "in the batch before", "in this one")
        raise site.error(
            next(iter(last.differing_columns(schema)), None),
            f"columns and dtypes may not change between batches: {difference}. Set `dtypes`, or "
            "give all rows the same columns and dtypes in the source.",
        )
    if options.pads:
        columns = tuple(name for name in schema.names if name != options.mask_column)
        _check_names("paddings", options.paddings, columns, site)
        check_padding(schema, options, site)
    if options.pads and options.synchronize_batches and jax.process_count() > 1:
        for node in schema.tree.classes():
            if not trees.importable(node):
                raise site.error(
                    None,
                    f"the batch holds a {node.type}, which a process without rows could not import "
                    "to make its batches of padding. Define the class at the top of a module.",
                )


def _check_names(argument: str, value: Any, names: tuple[str, ...], site: Site) -> None:
    """Check that a mapping from column to value names each column, and no other.

    As with Ray, a mapping of one entry, under any name, serves a bare array.
    """
    if not isinstance(value, Mapping) or (names == ("",) and len(value) == 1):
        return
    known = ", ".join(map(repr, names))
    for name in value:
        if name not in names:
            raise site.error(name, f"`{argument}` names this column, but a batch has only {known}.")
    for name in names:
        if name not in value:
            raise site.error(
                name,
                f"`{argument}` does not name this column. Name all of {known}, or give one value "
                "for all.",
            )


def _for_column(value: Any, name: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    return value[name] if name in value else next(iter(value.values()))
