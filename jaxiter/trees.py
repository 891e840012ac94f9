"""Nested batches: a tree of arrays <-> its leaves in an order that all processes share."""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import jax
import numpy as np

from jaxiter.errors import DataError
from jaxiter.site import Site

Kind = Literal["leaf", "none", "dict", "list", "tuple", "namedtuple", "dataclass"]
SUPPORTED = (
    "an array, or a dict, list, tuple, named tuple or registered dataclass of such "
    "(jax.tree_util.register_dataclass)"
)


@dataclass(frozen=True)
class Node:
    """The structure of a batch, without its arrays; hashable, and equal across processes.

    Attributes:
        kind: What stands here.
        keys: Keys of a dict in sorted order, field names, or positions; one for each child.
        children: The structures below.
        type: `module:qualname` of a named tuple or dataclass.
        static: Fields of a dataclass that hold no data, with their values.
        order: Keys of a dict as the process that read it had them; not compared.
        cls: The class that `type` names, where it is at hand; not compared.
    """

    kind: Kind
    keys: tuple[str | int, ...] = ()
    children: tuple["Node", ...] = ()
    type: str = ""
    static: tuple[tuple[str, Any], ...] = ()
    order: tuple[str | int, ...] = field(default=(), compare=False)
    cls: Any = field(default=None, compare=False, repr=False)

    def names(self, prefix: str = "") -> Iterator[str]:
        """Yield the column name of each leaf: keys joined by '/', empty for a bare array."""
        if self.kind == "leaf":
            yield prefix
        for key, child in zip(self.keys, self.children, strict=True):
            yield from child.names(f"{prefix}/{key}" if prefix else str(key))

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """What `names` yields."""
        return tuple(self.names())

    @cached_property
    def is_flat(self) -> bool:
        """Whether it is a dict of arrays alone."""
        return self.kind == "dict" and all(child.kind == "leaf" for child in self.children)

    def leaf_count(self) -> int:
        """Return the number of arrays."""
        return (self.kind == "leaf") + sum(child.leaf_count() for child in self.children)

    def to_json(self) -> Any:
        """Return a JSON value, equal for equal structures, from which `from_json` builds one."""
        if self.kind in ("leaf", "none"):
            return self.kind
        value: dict[str, Any] = {
            "kind": self.kind,
            "keys": list(self.keys),
            "children": [child.to_json() for child in self.children],
        }
        if self.type:
            value["type"] = self.type
        if self.static:
            value["static"] = [[name, item] for name, item in self.static]
        return value

    @staticmethod
    def from_json(value: Any) -> "Node":
        """Return the structure that `to_json` described."""
        if isinstance(value, str):
            return LEAF if value == "leaf" else NONE
        return Node(
            kind=value["kind"],
            keys=tuple(value["keys"]),
            children=tuple(Node.from_json(child) for child in value["children"]),
            type=value.get("type", ""),
            static=tuple((name, _tupled(item)) for name, item in value.get("static", ())),
        )

    def classes(self) -> Iterator["Node"]:
        """Yield each node below and including this one that is of a class of its own."""
        if self.type:
            yield self
        for child in self.children:
            yield from child.classes()


LEAF = Node("leaf")
NONE = Node("none")


def flatten(tree: Any, site: Site) -> tuple[Node, list[np.ndarray]]:
    """Take a batch apart.

    Args:
        tree: `SUPPORTED`; arrays of any dtype with at least one dimension, the rows.
        site: Named in errors.

    Returns:
        The structure, and its arrays in the order of `Node.names`.

    Raises:
        DataError: A part of another type, an array without rows, a key that is neither str nor
            int, or two columns of one name.
    """
    if type(tree) is dict and tree and _is_flat(tree):
        node = _flat_node(tuple(tree))
        return node, [tree[key] for key in node.keys]
    leaves: list[np.ndarray] = []
    node = _flatten(tree, "", leaves, site)
    return node, leaves


def build(node: Node, leaves: Iterable[Any]) -> Any:
    """Return the batch of structure `node` with `leaves`, which come in the order of `Node.names`.

    Raises:
        DataError: A class of the structure cannot be imported in this process.
    """
    if node.is_flat:
        named = dict(zip(node.keys, leaves, strict=True))
        return {key: named[key] for key in node.order or node.keys}
    return _build(node, iter(leaves))


def with_key(
    node: Node, leaves: list[np.ndarray], key: str, leaf: np.ndarray
) -> tuple[Node, list[np.ndarray]]:
    """Return a dict's structure and leaves with a leaf more, last in the dict's own order."""
    children = dict(zip(node.keys, node.children, strict=True)) | {key: LEAF}
    keys = _sorted_keys(children)
    before = sum(children[other].leaf_count() for other in keys[: keys.index(key)])
    wider = Node(
        "dict", keys, tuple(children[key] for key in keys), order=(*(node.order or node.keys), key)
    )
    return wider, [*leaves[:before], leaf, *leaves[before:]]


def importable(node: Node) -> bool:
    """Say whether any process can find the class of `node` by its name."""
    try:
        found = _import(node.type)
    except (ImportError, AttributeError):
        return False
    return node.cls is None or found is node.cls


def _is_flat(tree: dict[Any, Any]) -> bool:
    """Whether a dict is names of columns to plain arrays with rows, as most batches are."""
    return (
        set(map(type, tree)) == {str}
        and set(map(type, tree.values())) == {np.ndarray}
        and all(array.ndim for array in tree.values())
    )


@lru_cache(maxsize=64)
def _flat_node(keys: tuple[str, ...]) -> Node:
    """Return the structure of a dict of arrays: one object for equal keys, quick to compare."""
    return Node("dict", tuple(sorted(keys)), (LEAF,) * len(keys), order=keys)


def _flatten(tree: Any, name: str, leaves: list[np.ndarray], site: Site) -> Node:
    if tree is None:
        return NONE
    if isinstance(tree, Mapping):
        keys = _sorted_keys(tree, name, site)
        children = (_flatten(tree[key], _joined(name, key), leaves, site) for key in keys)
        return Node("dict", keys, tuple(children), order=tuple(tree))
    fields_of_tuple = getattr(tree, "_fields", None) if isinstance(tree, tuple) else None
    if isinstance(tree, list | tuple) and fields_of_tuple is None:
        children = (_flatten(item, _joined(name, i), leaves, site) for i, item in enumerate(tree))
        kind: Kind = "list" if isinstance(tree, list) else "tuple"
        return Node(kind, tuple(range(len(tree))), tuple(children))
    if fields_of_tuple is not None:
        keys = tuple(fields_of_tuple)
        children = (
            _flatten(item, _joined(name, key), leaves, site)
            for key, item in zip(keys, tree, strict=True)
        )
        return Node("namedtuple", keys, tuple(children), type=_name_of(type(tree)), cls=type(tree))
    if is_dataclass(tree) and not isinstance(tree, type):
        return _flatten_dataclass(tree, name, leaves, site)
    leaves.append(_as_array(tree, name, site))
    return LEAF


def _flatten_dataclass(tree: Any, name: str, leaves: list[np.ndarray], site: Site) -> Node:
    paths, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: part is not tree)
    entries = [(path[0], part) for path, part in paths if len(path) == 1]
    keys = tuple(entry.name for entry, _ in entries if isinstance(entry, jax.tree_util.GetAttrKey))
    if len(keys) != len(paths):
        raise site.error(
            name or None,
            f"the batch holds a {_name_of(type(tree))}, a dataclass that JAX does not know as one. "
            "Register it with jax.tree_util.register_dataclass.",
        )
    static = []
    for item in fields(tree):
        if item.init and item.name not in keys:
            value = getattr(tree, item.name)
            if not _is_plain(value):
                raise site.error(
                    _joined(name, item.name),
                    f"the field holds no data, so all processes must agree on it, but its value "
                    f"is a {type(value).__name__}. Use None, bool, int, float, str or tuples.",
                )
            static.append((item.name, value))
    children = tuple(
        _flatten(part, _joined(name, key), leaves, site)
        for key, (_, part) in zip(keys, entries, strict=True)
    )
    cls = type(tree)
    return Node("dataclass", keys, children, _name_of(cls), tuple(static), cls=cls)


def _as_array(value: Any, name: str, site: Site) -> np.ndarray:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise site.error(
            name, "it is a masked array, whose mask would be lost. Fill it, or add a mask column."
        )
    if getattr(value, "null_count", 0):
        raise site.error(
            name, f"it has {value.null_count} nulls. Fill or drop them before the batch is made."
        )
    if isinstance(value, np.generic) or not hasattr(value, "__array__"):
        raise site.error(
            name,
            f"{_name_of(type(value))} is no array. A batch is {SUPPORTED}; "
            "turn lists and numbers into numpy arrays that have one entry a row.",
        )
    try:
        array = np.asarray(value)
    except Exception as error:  # of a foreign library's own kind
        raise site.error(
            name, f"{_name_of(type(value))} cannot be read as a numpy array: {error}."
        ) from error
    if array.ndim == 0:
        raise site.error(name, "an array of no dimensions has no rows.")
    return array


def _sorted_keys(
    mapping: Mapping[Any, Any], name: str = "", site: Site | None = None
) -> tuple[str | int, ...]:
    for key in mapping:
        if type(key) not in (str, int) and site is not None:
            raise site.error(
                name or None,
                f"the key {key!r} is a {type(key).__name__}; names of columns are str (or int).",
            )
    return tuple(sorted(mapping, key=lambda key: (type(key).__name__, key)))


def _build(node: Node, leaves: Iterator[Any]) -> Any:
    if node.kind == "leaf":
        return next(leaves)
    if node.kind == "none":
        return None
    parts = [_build(child, leaves) for child in node.children]
    if node.kind == "list":
        return parts
    if node.kind == "tuple":
        return tuple(parts)
    named: dict[Any, Any] = dict(zip(node.keys, parts, strict=True))
    if node.kind == "dict":
        return {key: named[key] for key in node.order or node.keys}
    return _class_of(node)(**named, **dict(node.static))


def _class_of(node: Node) -> Any:
    if node.cls is not None:
        return node.cls
    try:
        return _import(node.type)
    except (ImportError, AttributeError) as error:
        raise DataError(
            f"a batch of padding needs the class {node.type}, which cannot be imported here. "
            "Define it at the top of a module that every process can import."
        ) from error


def _import(name: str) -> Any:
    module, _, qualname = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _joined(name: str, key: str | int) -> str:
    return f"{name}/{key}" if name else str(key)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str)


def _tupled(value: Any) -> Any:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value
