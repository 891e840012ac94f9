"""Backends of a gang: how its ranks are started, reached, watched and ended."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.watchdog import Sample


class GangStartError(RuntimeError):
    """The processes of a gang could not be started; the text names the ranks and their output."""


@dataclass(frozen=True)
class Topology:
    """What a gang is made of.

    Attributes:
        processes: number of ranks.
        devices_per_process: CPU devices of each.
        env: environment variables of the ranks, beyond the parent's.
        jax_config: JAX options of the ranks, beyond the gang's own.
        start_timeout_s: how long the ranks may take until all have run a collective.
    """

    processes: int
    devices_per_process: int
    env: Mapping[str, str] = field(default_factory=dict)
    jax_config: Mapping[str, Any] = field(default_factory=dict)
    start_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        try:
            pickle.dumps(dict(self.jax_config))
        except Exception as error:
            raise TypeError(
                f"jax_config cannot be pickled: {error}. Give names and plain values of options."
            ) from error


@dataclass(frozen=True)
class Call:
    """What each rank is to run: `fn(*args[rank], **kwargs)`."""

    fn: Callable[..., Any]
    args: Sequence[tuple[Any, ...]]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Ended:
    """A rank's function ended by itself; `report` is what `harness.rank.execute` made of it."""

    rank: int
    report: bytes


@dataclass(frozen=True)
class Gone:
    """A rank's process is no more; `detail` is what whoever started it says of that."""

    rank: int
    exit_status: int | None = None
    signal: str | None = None
    detail: str = ""


class Session(Protocol):
    """Processes that share one `jax.distributed` session, from their start to their end."""

    def is_ready(self) -> bool:
        """Whether all processes live and none is stopped, so that a run can begin. Cheap."""

    def encode(self, call: Call) -> Sequence[Any]:
        """Make the call ready to travel, one item a rank. Raises whatever pickling it raises."""

    def send(self, calls: Sequence[Any]) -> None:
        """Begin a run: forget the records and output of the one before. Never blocks."""

    def poll(self, timeout_s: float) -> Sequence[Ended | Gone]:
        """Wait until some rank has ended or is gone, `timeout_s` at most. Each is told once."""

    def sample(self, ranks: Collection[int]) -> Mapping[int, Sample]:
        """Look at ranks that have not ended. One that cannot be seen has made no progress."""

    def stacks(self, ranks: Collection[int]) -> Mapping[int, str]:
        """Take the Python stacks of all threads of these ranks, in bounded time."""

    def record(self, rank: int) -> bytes:
        """Read what the rank has recorded in this run, as `harness.records.parse` takes it."""

    def output(self, rank: int) -> str:
        """Give the tail of what the rank has written to stdout and stderr in this run."""

    def kill(self) -> None:
        """End all processes, however they are, and free what they held. May be called again."""


class Backend(Protocol):
    """Starts sessions. One backend serves one gang."""

    @property
    def default_stall_s(self) -> float:
        """Seconds without progress that make a hang, where the caller says nothing."""

    def start(self, topology: Topology) -> Session:
        """Start the processes; returns when all have run a collective.

        Raises:
            GangStartError: they did not all get that far within `start_timeout_s`.
        """

    def close(self) -> None:
        """End and remove all that was started. May be called again."""
