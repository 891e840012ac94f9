"""Classes of batches, in a module that any process can import."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax


@jax.tree_util.register_dataclass
@dataclass
class Tokens:
    """A registered dataclass with one static field."""

    ids: Any
    weights: Any
    split: Any = field(default="train", metadata={"static": True})


@dataclass
class Unregistered:
    """A dataclass that JAX does not know."""

    ids: Any


class Pair(NamedTuple):
    """A named tuple."""

    left: Any
    right: Any
