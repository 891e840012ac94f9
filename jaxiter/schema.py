"""What all processes must agree on about a batch: its structure, dtypes and trailing shapes."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes  # noqa: F401  # makes numpy know bfloat16 and fp8 by name
import numpy as np

from jaxiter import trees
from jaxiter.site import Site, label


@dataclass(frozen=True)
class Column:
    """One array of a batch.

    Attributes:
        name: Its path in the batch, keys joined by '/'; empty for a bare array.
        dtype: The numpy name of its final dtype, such as 'bfloat16'.
        shape: Its trailing shape, without the rows.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        """Return dtype and shape as in 'float32 (rows, 4, 3)'."""
        return f"{self.dtype} ({', '.join(['rows', *map(str, self.shape)])})"

    @property
    def np_dtype(self) -> np.dtype[Any]:
        """The dtype itself."""
        return np.dtype(self.dtype)


@dataclass(frozen=True)
class Schema:
    """Structure of a batch and its columns, in the order of its leaves; hashable."""

    tree: trees.Node
    columns: tuple[Column, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names, in the order of the leaves."""
        return tuple(column.name for column in self.columns)

    @property
    def is_bare(self) -> bool:
        """Whether a batch is one array, not a tree of arrays."""
        return self.tree == trees.LEAF

    def to_json(self) -> Any:
        """Return a JSON value, equal for equal schemas, from which `from_json` builds one."""
        return {
            "tree": self.tree.to_json(),
            "columns": [[column.dtype, list(column.shape)] for column in self.columns],
        }

    @staticmethod
    def from_json(value: Any) -> "Schema":
        """Return the schema that `to_json` described."""
        tree = trees.Node.from_json(value["tree"])
        columns = zip(tree.names(), value["columns"], strict=True)
        return Schema(
            tree, tuple(Column(name, dtype, tuple(shape)) for name, (dtype, shape) in columns)
        )

    def diff(self, other: "Schema", here: str = "here", there: str = "there") -> str:
        """Say in words all that differs, column by column; empty if nothing does.

        Args:
            other: The schema to compare with.
            here: What to call this schema, such as 'process 0'.
            there: What to call the other.
        """
        mine = {column.name: column for column in self.columns}
        theirs = {column.name: column for column in other.columns}
        words = []
        for name in sorted(mine.keys() | theirs.keys()):
            if name not in theirs:
                words.append(f"{label(name)} is missing {there} ({mine[name]} {here})")
            elif name not in mine:
                words.append(f"{label(name)} is missing {here} ({theirs[name]} {there})")
            elif mine[name] != theirs[name]:
                words.append(f"{label(name)} is {mine[name]} {here}, {theirs[name]} {there}")
        if not words and self.tree != other.tree:
            words.append(
                f"the structure is {_words(self.tree)} {here}, {_words(other.tree)} {there}"
            )
        return "; ".join(words)

    def differing_columns(self, other: "Schema") -> tuple[str, ...]:
        """Return the names of the columns that `diff` tells of.

        First those that are missing on one side, then those of two dtypes: other trailing shapes,
        and within a batch other dtypes, may be there beside them and be no fault.
        """
        mine = {column.name: column for column in self.columns}
        theirs = {column.name: column for column in other.columns}

        def gravity(name: str) -> tuple[bool, bool, str]:
            if name not in mine or name not in theirs:
                return False, False, name
            return True, mine[name].dtype == theirs[name].dtype, name

        differing = {column.name for column in set(self.columns) ^ set(other.columns)}
        return tuple(sorted(differing, key=gravity))


def schema_of(tree: trees.Node, leaves: Iterable[np.ndarray], site: Site) -> Schema:
    """Return the schema of a batch.

    Raises:
        DataError: Two columns have one name, as {'a': {'b': x}} and {'a/b': x} would.
    """
    names = list(tree.names())
    for name, count in Counter(names).items():
        if count > 1:
            raise site.error(name, "two columns have this name. Rename one of them.")
    return Schema(
        tree,
        tuple(
            Column(name, leaf.dtype.name, leaf.shape[1:])
            for name, leaf in zip(names, leaves, strict=True)
        ),
    )


def unflatten(schema: Schema, leaves: Iterable[Any]) -> Any:
    """Return the batch that `leaves`, in the order of `schema.columns`, make up.

    Raises:
        DataError: A dataclass or named tuple of the schema cannot be imported in this process.
    """
    return trees.build(schema.tree, leaves)


def _words(node: trees.Node) -> str:
    if node.kind in ("leaf", "none"):
        return "an array" if node.kind == "leaf" else "None"
    inner = ", ".join(
        f"{key}: {_words(child)}" for key, child in zip(node.keys, node.children, strict=True)
    )
    static = "".join(f", {name}={value!r}" for name, value in node.static)
    return f"{node.type or node.kind}({inner}{static})"
