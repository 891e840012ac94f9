"""The marker `gang`: what a test asks for, as one topology an item."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from harness.backends import Backend
from harness.gang import BACKENDS
from harness.pytest_plugin.settings import Settings

MakeBackend = Callable[[], Backend]


@dataclass(frozen=True)
class Topology:
    """What a gang is made of; tests that ask for equal ones share a gang.

    Attributes:
        processes: number of ranks.
        devices: CPU devices of each.
        backend: its name, or what makes one.
        env: environment variables of the ranks, beyond the parent's.
        jax_config: JAX options of the ranks.
    """

    processes: int
    devices: int
    backend: str | MakeBackend
    env: tuple[tuple[str, str], ...] = ()
    jax_config: tuple[tuple[str, Hashable], ...] = ()

    def describe(self) -> str:
        """Name it in few words."""
        return f"processes={self.processes}, devices={self.devices}, backend={_name(self.backend)}"


@dataclass(frozen=True)
class Limits:
    """How long one run may take; `stall_s` is the backend's where `None`."""

    deadline_s: float
    stall_s: float | None


class MarkerError(ValueError):
    """The marker has an argument that cannot be used."""


def arguments_of(marks: Iterable[pytest.Mark]) -> dict[str, Any]:
    """Put the arguments of markers together, of class, module and function: the nearest wins.

    Raises:
        MarkerError: an argument is unknown or given twice.
    """
    given: dict[str, Any] = {}
    for mark in reversed(list(marks)):
        try:
            given |= _SIGNATURE.bind(*mark.args, **mark.kwargs).arguments
        except TypeError as error:
            known = ", ".join(_SIGNATURE.parameters)
            raise MarkerError(f"gang: {error}; it takes {known}") from None
    return given


def _signature(
    processes: int | Sequence[int],
    devices: int | Sequence[int],
    backend: str | MakeBackend | Sequence[str | MakeBackend],
    *,
    deadline_s: float,
    stall_s: float,
    env: Mapping[str, str],
    jax_config: Mapping[str, Hashable],
) -> None:
    """Only its signature is used."""


# All may be left out.
_SIGNATURE = inspect.Signature(
    [p.replace(default=None) for p in inspect.signature(_signature).parameters.values()]
)


def topologies(given: Mapping[str, Any], settings: Settings) -> dict[str, Topology]:
    """Every topology that is asked for, by its id in the name of an item.

    Raises:
        MarkerError: an argument cannot be used.
    """
    axes: dict[str, list[Any]] = {
        "processes": _within(
            _numbers("processes", given.get("processes", settings.processes)), settings
        ),
        "devices": _numbers("devices", given.get("devices", settings.devices)),
        "backend": _backends(given.get("backend", settings.backend)),
    }
    env = _items("env", given.get("env", {}))
    if not all(isinstance(value, str) for _, value in env):
        raise MarkerError(f"gang: env must map names to text, not {dict(env)!r}")
    jax_config = _items("jax_config", given.get("jax_config", {}))
    shown = ["processes", *(n for n in ("devices", "backend") if _is_list(given.get(n)))]
    found = {}
    for values in product(*axes.values()):
        one = dict(zip(axes, values, strict=True))
        id_ = "-".join(f"{name}={_name(one[name])}" for name in shown)
        if id_ in found:
            raise MarkerError(f"gang: {id_} is asked for twice")
        found[id_] = Topology(**one, env=env, jax_config=jax_config)
    return found


def limits(given: Mapping[str, Any], settings: Settings) -> Limits:
    """How long a run of the test may take.

    Raises:
        MarkerError: a number cannot be used.
    """
    for name in ("deadline_s", "stall_s"):
        value = given.get(name)
        if name in given and not (isinstance(value, int | float) and value > 0):
            raise MarkerError(f"gang: {name} must be seconds, more than 0, not {value!r}")
    return Limits(
        given.get("deadline_s", settings.deadline_s), given.get("stall_s", settings.stall_s)
    )


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple | range)


def _numbers(name: str, value: Any) -> list[int]:
    values = list(value) if _is_list(value) else [value]
    if not values or not all(type(each) is int and each >= 1 for each in values):
        raise MarkerError(
            f"gang: {name} must be a whole number of 1 or more, or a list of them, not {value!r}"
        )
    return values


def _within(processes: list[int], settings: Settings) -> list[int]:
    """Refuse what the limit that somebody has set will never allow."""
    limit = settings.max_processes
    if limit is not None and max(processes) > limit:
        raise MarkerError(
            f"gang: processes={max(processes)} is more than gang_max_processes={limit} allows: "
            "give a higher limit, or fewer processes"
        )
    return processes


def _backends(value: Any) -> list[str | MakeBackend]:
    values = list(value) if _is_list(value) else [value]
    if not values or not all(isinstance(each, str) or callable(each) for each in values):
        raise MarkerError(
            f"gang: backend must be a name, a function that makes a backend, or a list of them, "
            f"not {value!r}"
        )
    unknown = [each for each in values if isinstance(each, str) and each not in BACKENDS]
    if unknown:
        raise MarkerError(
            f"gang: backend must be one of {', '.join(BACKENDS)}, or a function that makes a "
            f"backend, not {unknown[0]!r}"
        )
    return values


def _items(name: str, value: Any) -> tuple[tuple[str, Any], ...]:
    if not isinstance(value, Mapping):
        raise MarkerError(f"gang: {name} must be a dict, not {value!r}")
    items = tuple(sorted(value.items()))
    try:
        hash(items)
    except TypeError:
        raise MarkerError(f"gang: {name} must have values that can be hashed: {value!r}") from None
    return items


def _name(value: object) -> str:
    return getattr(value, "__name__", None) or str(value)
