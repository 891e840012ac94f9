"""A Ray cluster for gangs: the one this process is connected to, or one of their own."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ray

from harness.backends.environment import import_path
from harness.custody import Custody

# On a machine with one core, a dataset whose tasks need two CPUs would never run.
LEAST_CPUS = 2
QUIET = {
    # Ray warns that the meaning of this will change, and the ranks have no accelerators.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass
class _Connection:
    """A connection that gangs have made, and end when the last of them has left."""

    custody: Custody | None
    cluster: str
    users: int = 0

    def is_live(self) -> bool:
        """Whether this process is still connected to that cluster, and nobody has changed that."""
        return ray.is_initialized() and _cluster_id() == self.cluster

    def end(self) -> None:
        """Disconnect, and end the cluster if it was started here."""
        if self.is_live():
            ray.shutdown()
        if self.custody is not None:
            self.custody.close()


_lock = threading.Lock()
_connection: _Connection | None = None


def enter(
    address: str | None = None,
    cpus: int | None = None,
    object_store_bytes: int = 200 * 1024 * 1024,
    runtime_env: Mapping[str, Any] | None = None,
) -> Callable[[], None]:
    """Connect to a cluster; returns the function that leaves it, which may be called again.

    Args:
        address: of a running cluster. Without one, and without a connection, a cluster of this
            machine alone is started.
        cpus: CPUs that a cluster started here says it has; at least two and one a core if `None`.
        object_store_bytes: shared memory of a cluster started here.
        runtime_env: of this process's job, where it has no connection yet. Ray uploads the local
            folders in it, for all that the job runs.
    """
    global _connection  # noqa: PLW0603 - Ray has one connection a process, so do we
    with _lock:
        if _connection is not None and not _connection.is_live():
            _connection.end()
            _connection = None
        if _connection is None:
            if ray.is_initialized():
                return lambda: None
            _connection = _connect(address, cpus, object_store_bytes, dict(runtime_env or {}))
        _connection.users += 1
        return _Leave(_connection)


class _Leave:
    """Gives up one use of a shared connection, once."""

    def __init__(self, connection: _Connection) -> None:
        self._used: _Connection | None = connection

    def __call__(self) -> None:
        global _connection  # noqa: PLW0603
        with _lock:
            used, self._used = self._used, None
            if used is None:
                return
            used.users -= 1
            if used.users == 0:
                used.end()
                if _connection is used:
                    _connection = None


def _cluster_id() -> str:
    return str(ray.get_runtime_context().gcs_address)


def _connect(
    address: str | None, cpus: int | None, object_store_bytes: int, runtime_env: dict[str, Any]
) -> _Connection:
    if address is not None:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.WARNING,
            runtime_env=runtime_env or None,
        )
        return _Connection(None, _cluster_id())
    custody = Custody()
    name, value = custody.mark
    added = {
        name: value,
        # Whatever it runs finds the modules that this process finds.
        "PYTHONPATH": os.pathsep.join(import_path()),
        **{k: v for k, v in QUIET.items() if k not in os.environ},
    }
    before = {each: os.environ.get(each) for each in added}
    # What ray.init starts inherits the mark, so nothing of it outlives this process.
    os.environ.update(added)
    try:
        ray.init(
            num_cpus=cpus or max(LEAST_CPUS, os.cpu_count() or 1),
            include_dashboard=False,
            object_store_memory=object_store_bytes,
            log_to_driver=False,
            logging_level=logging.WARNING,
            runtime_env=runtime_env or None,
            _temp_dir=str(custody.directory),
        )
    except BaseException:
        ray.shutdown()
        custody.close()
        raise
    finally:
        for each, old in before.items():
            os.environ.pop(each, None)
            if old is not None:
                os.environ[each] = old
    # Ray's agents lose the mark, and their parent when that ends before they do.
    custody.hold()
    return _Connection(custody, _cluster_id())
