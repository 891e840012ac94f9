"""Implementations under test: a name, or ``module:attribute``.

A subject is a callable ``f(source, **options)`` with the argument names of Ray's
``iter_jax_batches``; it returns an iterable of batches. ``source`` is a Ray ``Dataset`` or
``DataIterator``, or in memory an iterable of host batches: ``dict[str, np.ndarray]``, or one array.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.model import Case, Kind

Iterate = Callable[..., Iterable[Any]]


class SubjectError(ValueError):
    """A subject that cannot be loaded; the message says what was looked for and where."""


@dataclass(frozen=True)
class Subject:
    """``name`` as given by the user; ``kinds`` are the sources it reads.

    ``arguments`` is where its arguments are to be read, if not from the callable itself.
    """

    name: str
    target: str
    kinds: tuple[Kind, ...] = ("memory", "ray")
    arguments: str = ""

    def load(self) -> Iterate:
        """Import the callable. Raises SubjectError when there is none."""
        return self._import(self.target)

    def _import(self, target: str) -> Iterate:
        module, _, attribute = target.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (Exception, SystemExit) as error:  # a module may raise anything
            raise SubjectError(
                f"subject {self.name!r}: {target} cannot be loaded ({error}); give one of "
                f"{', '.join(NAMED)} or module:attribute, found in the working directory or on "
                "PYTHONPATH"
            ) from error
        if not callable(found):
            raise SubjectError(f"subject {self.name!r}: {target} is not callable")
        return found  # type: ignore[no-any-return]

    def lacks(self, case: Case) -> str:
        """Why this subject cannot run the case: the name of an argument that it does not have."""
        takes = self._parameters()
        if takes is None:
            return ""
        given = {name for p in (0, *case.own_options) for name in self.given(case.options_of(p))}
        given |= {"collate_fn"} if case.collate else set()
        given |= {"sharding"} if case.sharding else set()
        given |= {"name"} if case.use.named else set()
        return ", ".join(sorted(given - takes))

    def given(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """What it is called with: without ``synchronize_batches`` if it cannot but synchronise."""
        takes = self._parameters()
        always = takes is not None and "synchronize_batches" not in takes
        return {
            name: value
            for name, value in options.items()
            if not (always and name == "synchronize_batches" and value is True)
        }

    def _parameters(self) -> frozenset[str] | None:
        """The names of its parameters; None if it takes any, or does not tell."""
        try:
            signature = inspect.signature(self._import(self.arguments or self.target))
        except ValueError:  # a builtin need not tell: its answer to the call does
            return None
        if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            return None
        return frozenset(signature.parameters)


def ray_method(source: Any, **options: Any) -> Iterable[Any]:
    """Ray's public method, ``Dataset.iter_jax_batches`` or ``DataIterator.iter_jax_batches``."""
    return source.iter_jax_batches(**options)  # type: ignore[no-any-return]


def installed_method(source: Any, **options: Any) -> Iterable[Any]:
    """Ray's own method names, with jaxiter put behind them."""
    import jaxiter.raydata

    jaxiter.raydata.install()
    return ray_method(source, **options)


def ray_generator(
    source: Iterable[Any],
    *,
    prefetch_batches: int = 1,
    batch_size: int = 256,
    dtypes: Any = None,
    collate_fn: Callable[[Any], Any] | None = None,
    drop_last: bool = False,
    synchronize_batches: bool = False,
    paddings: Any = None,
) -> Iterable[Any]:
    """Ray's private generator behind that method, on batches as the source emits them.

    Ray's own batcher comes before it, so a tail is dropped here when ``drop_last`` asks for it.
    Nothing else is rebatched: what the generator does with other sizes is what is looked at.
    """
    import jax
    from ray.data.util.jax_util import jax_sync_generator

    if batch_size <= 0 or batch_size % jax.local_device_count():
        raise ValueError(f"batch_size={batch_size} is not a multiple of the local devices")

    def emitted() -> Iterator[Any]:
        held: list[Any] = []
        for piece in source:
            yield from held
            held = [collate_fn(piece) if collate_fn else piece]
        for tail in held:
            first = next(iter(tail.values())) if isinstance(tail, Mapping) else tail
            if not drop_last or len(first) >= batch_size:
                yield tail

    return jax_sync_generator(  # type: ignore[no-any-return]
        emitted(),
        drop_last,
        batch_size=batch_size,
        paddings=paddings,
        dtypes=dtypes,
        synchronize_batches=synchronize_batches,
        synchronize_lookahead=max(prefetch_batches, 1),
    )


NAMED: dict[str, Subject] = {
    "ray": Subject(
        "ray", "conformance.subjects:ray_method", ("ray",), "ray.data:DataIterator.iter_jax_batches"
    ),
    "ray-generator": Subject("ray-generator", "conformance.subjects:ray_generator", ("memory",)),
    "jaxiter": Subject("jaxiter", "jaxiter:iter_jax_batches"),
    "jaxiter-installed": Subject(
        "jaxiter-installed",
        "conformance.subjects:installed_method",
        ("ray",),
        "jaxiter:iter_jax_batches",
    ),
    "reference": Subject("reference", "conformance.reference:iter_jax_batches"),
}


def find(name: str) -> Subject:
    """The subject of this name, or the one at ``module:attribute``. Raises SubjectError."""
    if name in NAMED:
        return NAMED[name]
    if ":" not in name:
        raise SubjectError(
            f"subject {name!r} is not known: give one of {', '.join(NAMED)}, or module:attribute"
        )
    return Subject(name, name)
