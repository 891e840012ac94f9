"""A gang: N JAX processes, warm between runs, that give one outcome a rank whatever they do."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from harness import travel
from harness.backends import Backend, Call, GangStartError, Session, Topology
from harness.outcome import Outcome, Returned, needs_fresh_processes
from harness.supervise import Run
from harness.verdict import verdict

__all__ = ["Gang", "GangStartError", "PrepareError"]


_CLOSED = "the gang was closed during the run"


class PrepareError(RuntimeError):
    """A function given to `Gang.prepare` did not return on every rank."""


class Gang:
    """N processes of `jax.distributed`, started when made, ended by `close`.

    ```python
    with Gang(processes=2, devices_per_process=1) as gang:
        outcomes = gang.run(fn, 1, 2, deadline_s=30)
    ```

    Args:
        processes: number of ranks, 1 or more; if `None`, as many as the backend has hosts for, or
            two where it takes any number.
        devices_per_process: devices of each, 1 or more; if `None`, as many as a host of the backend
            has, or one where it takes any number.
        backend: "local", "ray", "jaxtrainer", or a backend object that no other gang uses, such
            as a `harness.backends.tpu_slice.TpuBackend`.
        env: environment variables of the ranks, beyond the parent's.
        jax_config: JAX options of the ranks, by their names.
        start_timeout_s: how long the ranks may take to start.

    Raises:
        ValueError: a number is too small, or the backend's name unknown.
        TypeError: `jax_config` cannot be pickled.
        GangStartError: the ranks did not start.
    """

    def __init__(
        self,
        processes: int | None = None,
        devices_per_process: int | None = None,
        backend: str | Backend = "local",
        *,
        env: Mapping[str, str] | None = None,
        jax_config: Mapping[str, Any] | None = None,
        start_timeout_s: float = 120.0,
    ) -> None:
        self._backend = _backend(backend) if isinstance(backend, str) else backend
        if processes is None:
            processes = self._backend.processes or 2
        if devices_per_process is None:
            devices_per_process = self._backend.devices_per_process or 1
        for name, value in (
            ("processes", processes),
            ("devices_per_process", devices_per_process),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number of 1 or more, not {value!r}")
        if not start_timeout_s > 0:
            raise ValueError(f"start_timeout_s must be more than 0, not {start_timeout_s!r}")
        self._topology = Topology(
            processes, devices_per_process, dict(env or {}), dict(jax_config or {}), start_timeout_s
        )
        self._busy = threading.Lock()
        self._pid = os.getpid()
        self._closed = False
        self._restarts = 0
        self._prepared: dict[bytes, Call] = {}
        self._finalizer = weakref.finalize(self, _close, self._backend, self._pid)
        self._session: Session | None = None
        try:
            self._session = self._backend.start(self._topology)
        except BaseException:
            self.close()
            raise

    @property
    def processes(self) -> int:
        """Number of ranks."""
        return self._topology.processes

    @property
    def devices_per_process(self) -> int:
        """Number of CPU devices of each rank."""
        return self._topology.devices_per_process

    @property
    def restarts(self) -> int:
        """How many times fresh processes took the place of the ones before."""
        return self._restarts

    @property
    def closed(self) -> bool:
        """Whether `close` was called: nothing can run on it any more."""
        return self._closed

    def run(
        self,
        fn: Callable[..., Any],
        *args: Any,
        per_rank: Sequence[tuple[Any, ...]] | None = None,
        deadline_s: float = 60.0,
        stall_s: float | None = None,
        stops: Collection[int] = (),
        **kwargs: Any,
    ) -> list[Outcome]:
        """Call `fn(*per_rank[rank], *args, **kwargs)` on every rank at once.

        Inside, `harness.rank` has `this()` and `record()`. Function and arguments travel by
        cloudpickle. After a run whose ranks did not all end alike, or that left threads behind,
        the next run gets fresh processes first; that time is not part of any run.

        Args:
            fn: what each rank runs, in its main thread.
            *args: positional arguments, the same for all.
            per_rank: one tuple a rank, put before `args`.
            deadline_s: seconds from the start of the run until what has not ended is `Undecided`.
            stall_s: seconds without any progress of the gang until what has not ended is `Hung`;
                the backend's default where not given.
            stops: ranks that `fn` stops by a signal on purpose. Once only these are left, and
                stopped, they are `Hung` without a wait of `stall_s`.
            **kwargs: keyword arguments, the same for all.

        Returns:
            One outcome a rank, index = rank, within `deadline_s` and a small overhead.

        Raises:
            TypeError: function or arguments cannot be pickled; nothing has run.
            ValueError: an argument is out of range.
            RuntimeError: the gang is closed, or another thread runs something on it.
            GangStartError: fresh processes were needed and did not start.
            KeyboardInterrupt: as of Control-C; its note has the verdict and the stacks of all
                ranks as they stood, for which it takes a few seconds at most.
        """
        stall_s = self._backend.default_stall_s if stall_s is None else stall_s
        for name, value in (("deadline_s", deadline_s), ("stall_s", stall_s)):
            if not value > 0:
                raise ValueError(f"{name} must be more than 0, not {value!r}")
        if strange := sorted(set(stops) - set(range(self.processes))):
            raise ValueError(
                f"stops must be ranks from 0 to {self.processes - 1}, not {strange[0]!r}"
            )
        if per_rank is not None and len(per_rank) != self.processes:
            raise ValueError(
                f"per_rank must have one tuple a rank: {self.processes}, not {len(per_rank)}"
            )
        if per_rank is not None and not all(isinstance(own, tuple | list) for own in per_rank):
            raise ValueError(f"per_rank must have one tuple of arguments a rank, not {per_rank!r}")
        with self._exclusively("run"):
            session = self._live_session()
            call = _call(fn, args, kwargs, per_rank, self.processes)
            return self._run(
                session, Run(session, _encode(session, call), deadline_s, stall_s, stops)
            )

    def prepare(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Run `fn` on every rank outside any case's clock, now and on each fresh set of processes.

        Meant for the first use of a mesh, which is slow, and fails in its own way.

        Raises:
            PrepareError: it did not return on every rank; the text has each rank's outcome.
            TypeError: function or arguments cannot be pickled; nothing has run.
        """
        with self._exclusively("prepare"):
            session = self._live_session()
            call = _call(fn, args, kwargs, None, self.processes)
            calls = _encode(session, call)
            key = travel.dumps((fn, args, kwargs))
            if key not in self._prepared:
                self._prepare(session, calls)
                self._prepared[key] = call

    def renew(self) -> None:
        """End the processes; the next run gets fresh ones, and what was prepared runs on them.

        For a run after which the processes are in different states though all ended alike.

        Raises:
            RuntimeError: the gang is closed, or another thread runs something on it.
        """
        with self._exclusively("renew"):
            if self._session is not None:
                self._end_session(self._session)

    def close(self) -> None:
        """End all processes and remove what they used. May be called again, from any thread."""
        self._closed = True
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _exclusively(self, verb: str) -> Iterator[None]:
        if os.getpid() != self._pid:
            raise RuntimeError(f"cannot {verb}: this gang belongs to process {self._pid}")
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(f"cannot {verb}: another thread runs something on this gang")
        try:
            if self._closed:
                raise RuntimeError(f"cannot {verb}: the gang is closed")
            yield
        finally:
            self._busy.release()

    def _live_session(self) -> Session:
        if self._session is not None and not self._session.is_ready():
            # What befell a rank between runs is no part of the next one.
            self._end_session(self._session)
        if self._session is None:
            self._restarts += 1
            try:
                session = self._backend.start(self._topology)
            except Exception as error:
                if self._closed:
                    raise RuntimeError(_CLOSED) from error
                raise
            self._session = session
            for call in self._prepared.values():
                self._prepare(session, _encode(session, call))
        return self._session

    def _prepare(self, session: Session, calls: Sequence[Any]) -> None:
        limit_s = self._topology.start_timeout_s
        outcomes = self._run(session, Run(session, calls, limit_s, limit_s))
        if not all(isinstance(outcome, Returned) for outcome in outcomes):
            raise PrepareError("\n".join(outcome.describe() for outcome in outcomes))

    def _run(self, session: Session, run: Run) -> list[Outcome]:
        try:
            try:
                outcomes = run.outcomes()
            except KeyboardInterrupt as error:
                # What hangs is the reason why one interrupts; a second interrupt ends this too.
                with contextlib.suppress(Exception):
                    outcomes = run.interrupted()
                    at_s = max(outcome.elapsed_s for outcome in outcomes)
                    error.add_note(
                        f"The gang was interrupted {at_s:.1f} s after the start of the run, which "
                        f"stood so:\n{verdict(outcomes).show()}"
                    )
                raise
        except BaseException as error:
            self._end_session(session)
            if self._closed and isinstance(error, Exception):
                raise RuntimeError(_CLOSED) from error
            raise
        if self._closed:
            raise RuntimeError(_CLOSED)
        if needs_fresh_processes(outcomes):
            self._end_session(session)
        return outcomes

    def _end_session(self, session: Session) -> None:
        self._session = None
        session.kill()


#: Backends that need no more than their name: the module and the class of each.
BACKENDS = {
    "local": ("local", "LocalBackend"),
    "ray": ("ray_actors", "RayBackend"),
    "jaxtrainer": ("jax_trainer", "JaxTrainerBackend"),
}


def _backend(name: str) -> Backend:
    if name in BACKENDS:
        module, kind = BACKENDS[name]
        backend: Backend = getattr(import_module(f"harness.backends.{module}"), kind)()
        return backend
    if name == "tpu":
        raise ValueError(
            'backend="tpu" does not say which slice: give TpuBackend(topology, version), '
            "from harness.backends.tpu_slice"
        )
    raise ValueError(
        f"backend must be one of {', '.join(BACKENDS)}, or a backend object, not {name!r}"
    )


def _close(backend: Backend, pid: int) -> None:
    # A forked child has a copy of the gang, not the gang.
    if os.getpid() == pid:
        backend.close()


def _call(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    per_rank: Sequence[tuple[Any, ...]] | None,
    processes: int,
) -> Call:
    if not callable(fn):
        raise TypeError(f"fn must be callable, not {type(fn).__name__}")
    if per_rank is None:
        return Call(fn, [args] * processes, kwargs)
    return Call(fn, [(*own, *args) for own in per_rank], kwargs)


def _encode(session: Session, call: Call) -> Sequence[Any]:
    try:
        return session.encode(call)
    except Exception as error:
        name = getattr(call.fn, "__qualname__", repr(call.fn))
        raise TypeError(
            f"{name} or its arguments cannot be pickled: {type(error).__name__}: {error}. "
            "Make what cannot travel inside the function, on the rank."
        ) from error
