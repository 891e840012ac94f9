"""Batches of exactly the size asked for, whatever sizes a source emits.

A source may emit arrays (alone or in a tree), Arrow tables or pandas frames; batches stay in that
format until the collate function has seen them.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from jaxiter.buffers import arrow_buffers, is_immutable
from jaxiter.schema import Schema, schema_of
from jaxiter.site import Site, label
from jaxiter.trees import Node, build, flatten


class Piece(Protocol):
    """Some rows in one of the formats that a source emits."""

    @property
    def rows(self) -> int:
        """The number of rows."""

    def slice(self, start: int, stop: int) -> "Piece":
        """Return rows `start` to `stop`, without a copy."""

    def owned(self) -> "Piece":
        """Return the same rows over memory that the source cannot write to."""


@dataclass(frozen=True)
class TreePiece:
    """Arrays of one number of rows, in a tree."""

    tree: Node
    arrays: list[np.ndarray]
    rows: int

    @staticmethod
    def of(batch: Any, site: Site) -> "TreePiece":
        """Take `batch` apart.

        Raises:
            DataError: A part is no array, or arrays are of unequal length.
        """
        tree, arrays = flatten(batch, site)
        rows = len(arrays[0]) if arrays else 0
        for name, array in zip(tree.column_names, arrays, strict=True):
            if len(array) != rows:
                raise site.error(
                    name,
                    f"it has {len(array)} rows, but {label(next(tree.names()))} has {rows}. "
                    "All columns of a batch need one number of rows.",
                )
        return TreePiece(tree, arrays, rows)

    def schema(self, site: Site) -> Schema:
        """Return the schema of these arrays as they are."""
        return schema_of(self.tree, self.arrays, site)

    def slice(self, start: int, stop: int) -> "TreePiece":
        """Return rows `start` to `stop`, without a copy."""
        if start == 0 and stop == self.rows:
            return self
        return TreePiece(self.tree, [array[start:stop] for array in self.arrays], stop - start)

    def owned(self) -> "TreePiece":
        """Return the same rows over memory that the source cannot write to."""
        arrays = [array if is_immutable(array) else array.copy() for array in self.arrays]
        return TreePiece(self.tree, arrays, self.rows)


@dataclass(frozen=True)
class TablePiece:
    """A `pyarrow.Table`."""

    table: Any

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.table.num_rows)

    def slice(self, start: int, stop: int) -> "TablePiece":
        """Return rows `start` to `stop`, without a copy."""
        return TablePiece(self.table.slice(start, stop - start))

    def owned(self) -> "TablePiece":
        """Return the same rows over memory that the source cannot write to."""
        columns = self.table.columns
        if not any(buffer.is_mutable for column in columns for buffer in arrow_buffers(column)):
            return self
        import pyarrow

        # The only deep copy that works for every type, extension types too.
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        return TablePiece(pyarrow.ipc.open_stream(sink.getvalue()).read_all())


@dataclass(frozen=True)
class FramePiece:
    """A `pandas.DataFrame`."""

    frame: Any

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.frame)

    def slice(self, start: int, stop: int) -> "FramePiece":
        """Return rows `start` to `stop`, without a copy."""
        return FramePiece(self.frame.iloc[start:stop])

    def owned(self) -> "FramePiece":
        """Return the same rows over memory that the source cannot write to."""
        return FramePiece(self.frame.copy())


def rebatch(source: Iterable[Any], batch_size: int, process: int) -> Iterator[list[Piece]]:
    """Cut what `source` emits into batches, each a list of pieces in order.

    The pieces of a batch may lie in memory that the source writes to again: use them before asking
    for the next batch.

    Args:
        source: Emits trees of arrays, Arrow tables or pandas frames of any number of rows.
        batch_size: Rows of each batch but the last.
        process: Named in errors.

    Yields:
        Pieces that have `batch_size` rows together; in the last batch 1 to `batch_size`.

    Raises:
        DataError: The source emits what is no batch.
    """
    waiting: list[Piece] = []
    missing = batch_size
    batch = 0
    for emitted in source:
        piece = _piece_of(emitted, Site(process, batch))
        start = 0
        while piece.rows - start >= missing:
            yield [*waiting, piece.slice(start, start + missing)]
            start += missing
            batch += 1
            waiting, missing = [], batch_size
        if start < piece.rows:
            waiting.append(piece.slice(start, piece.rows).owned())
            missing -= piece.rows - start
    if waiting:
        yield waiting


def join(pieces: Sequence[Piece], site: Site) -> Any:
    """Return the rows of `pieces` as one batch, in the format that the source emits.

    Raises:
        DataError: The pieces are of different columns, dtypes or formats.
    """
    formats = {type(piece) for piece in pieces}
    if len(formats) > 1:
        raise site.error(None, "the source emits batches in different formats.")
    if isinstance(pieces[0], TreePiece):
        return _join_trees([piece for piece in pieces if isinstance(piece, TreePiece)], site)
    if isinstance(pieces[0], TablePiece):
        return _join_tables(
            [piece.table for piece in pieces if isinstance(piece, TablePiece)], site
        )
    return _join_frames([piece.frame for piece in pieces if isinstance(piece, FramePiece)], site)


def same_columns(pieces: Sequence[TreePiece], site: Site) -> None:
    """Check that all pieces have one structure.

    Raises:
        DataError: They do not.
    """
    first = pieces[0]
    for piece in pieces[1:]:
        if piece.tree != first.tree:
            here, there = first.schema(site), piece.schema(site)
            raise site.error(
                next(iter(here.differing_columns(there)), None),
                "the source emits different columns within a batch: "
                f"{here.diff(there, 'first', 'later')}.",
            )


def _piece_of(emitted: Any, site: Site) -> Piece:
    library = type(emitted).__module__.partition(".")[0]
    if library == "pyarrow" and isinstance(emitted, sys.modules["pyarrow"].Table):
        return TablePiece(emitted)
    if library == "pandas" and isinstance(emitted, sys.modules["pandas"].DataFrame):
        return FramePiece(emitted)
    return TreePiece.of(emitted, site)


def _join_trees(pieces: Sequence[TreePiece], site: Site) -> Any:
    first = pieces[0]
    if len(pieces) == 1:
        return build(first.tree, first.arrays)
    same_columns(pieces, site)
    columns = list(zip(*(piece.arrays for piece in pieces), strict=True))
    for name, arrays in zip(first.tree.names(), columns, strict=True):
        kinds = {
            f"{array.dtype} ({', '.join(['rows', *map(str, array.shape[1:])])})": None
            for array in arrays
        }
        if len(kinds) > 1:
            raise site.error(
                name,
                f"the source emits {' and '.join(kinds)} within one batch, which cannot be joined "
                "without changing values. Give the column one dtype and shape in the source.",
            )
    return build(first.tree, [np.concatenate(arrays) for arrays in columns])


def _join_tables(tables: Sequence[Any], site: Site) -> Any:
    if len(tables) == 1:
        return tables[0]
    import pyarrow

    names = set(tables[0].column_names)
    for table in tables[1:]:
        for name in sorted(names ^ set(table.column_names)):
            raise site.error(name, "the source emits Arrow tables with and without this column.")
    try:
        # Columns of nulls alone, which have no type of their own, take the type of the others.
        return pyarrow.concat_tables(tables, promote_options="default")
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise site.error(
            None, f"the source emits Arrow tables that cannot be joined: {error}"
        ) from error


def _join_frames(frames: Sequence[Any], site: Site) -> Any:
    first = frames[0]
    for frame in frames[1:]:
        if not frame.dtypes.equals(first.dtypes):
            raise site.error(
                None,
                "the source emits frames of different columns or dtypes within a batch: "
                f"{first.dtypes.to_dict()} and {frame.dtypes.to_dict()}.",
            )
    import pandas as pd

    joined = pd.concat(frames) if len(frames) > 1 else first
    return joined.reset_index(drop=True)
