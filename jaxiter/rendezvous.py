"""How messages travel: numbered keys in a store that all processes reach.

The store is JAX's coordination service, a key-value store on process 0 that `jax.distributed` runs
anyway. JAX has no public way to it: the public functions of `multihost_utils` are device
collectives, which wait for steps already queued, deadlock when issued from another thread, and have
no time-out. This module alone touches `jax._src`, as orbax and others do, and says so if it moved.
"""

import threading
from collections.abc import Mapping
from typing import Any, Protocol

from jaxiter.errors import RendezvousError

_NEEDED = (
    "key_value_set",
    "key_value_dir_get",
    "key_value_delete",
    "key_value_increment",
    "blocking_key_value_get",
)


class Store(Protocol):
    """A key-value store. Keys are paths; values are text. All may be called from any thread."""

    def set(self, key: str, value: str) -> bool:
        """Write a key, and say whether it was free; an existing one stays as it is."""

    def get(self, key: str, timeout_s: float) -> str | None:
        """Return the value as soon as the key is there, None if it does not come in time."""

    def list(self, path: str) -> Mapping[str, str]:
        """Return all keys under a path, with their values."""

    def delete(self, path: str) -> None:
        """Delete a key, or all keys under a path."""

    def count(self, key: str) -> int:
        """Add 1 to the number at a key, 0 if it is not there, and return the sum."""


class CoordinationService:
    """The key-value store of `jax.distributed`."""

    def __init__(self, client: Any) -> None:
        missing = [name for name in _NEEDED if not hasattr(client, name)]
        if missing:
            raise RendezvousError(_moved(f"its client lacks {', '.join(missing)}"))
        self._client = client

    def set(self, key: str, value: str) -> bool:
        """See `Store`."""
        try:
            self._client.key_value_set(key, value)
        except RuntimeError as error:
            if "ALREADY_EXISTS" in str(error):
                return False
            raise _unreachable(error) from error
        return True

    def get(self, key: str, timeout_s: float) -> str | None:
        """See `Store`."""
        try:
            return str(self._client.blocking_key_value_get(key, max(1, int(timeout_s * 1000))))
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise _unreachable(error) from error

    def list(self, path: str) -> Mapping[str, str]:
        """See `Store`."""
        try:
            return dict(self._client.key_value_dir_get(path))
        except RuntimeError as error:
            raise _unreachable(error) from error

    def delete(self, path: str) -> None:
        """See `Store`."""
        try:
            self._client.key_value_delete(path)
        except RuntimeError as error:
            raise _unreachable(error) from error

    def count(self, key: str) -> int:
        """See `Store`."""
        try:
            return int(self._client.key_value_increment(key, 1))
        except RuntimeError as error:
            raise _unreachable(error) from error


class MemoryStore:
    """The same within one process, for tests."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str) -> bool:
        """See `Store`."""
        with self._changed:
            free = key not in self._values
            self._values.setdefault(key, value)
            self._changed.notify_all()
            return free

    def get(self, key: str, timeout_s: float) -> str | None:
        """See `Store`."""
        with self._changed:
            self._changed.wait_for(lambda: key in self._values, timeout_s)
            return self._values.get(key)

    def list(self, path: str) -> Mapping[str, str]:
        """See `Store`."""
        with self._changed:
            return {k: v for k, v in self._values.items() if k.startswith(f"{path}/")}

    def delete(self, path: str) -> None:
        """See `Store`."""
        with self._changed:
            for key in [k for k in self._values if k == path or k.startswith(f"{path}/")]:
                del self._values[key]

    def count(self, key: str) -> int:
        """See `Store`."""
        with self._changed:
            self._values[key] = str(int(self._values.get(key, "0")) + 1)
            return int(self._values[key])


def service() -> CoordinationService | None:
    """Return the service of this job; None if the job is one process.

    Raises:
        RendezvousError: There are several processes, and JAX has no service, or has moved it.
    """
    import jax

    if jax.process_count() == 1:
        return None
    try:
        from jax._src import distributed
    except ImportError as error:
        raise RendezvousError(_moved("there is no jax._src.distributed")) from error
    state: Any = getattr(distributed, "global_state", None)
    if not hasattr(state, "client"):
        raise RendezvousError(_moved("jax._src.distributed has no global_state.client"))
    if state.client is None:
        raise RendezvousError(
            f"this job has {jax.process_count()} processes, but no coordination service. Call "
            "jax.distributed.initialize() before the iterator is used, or pass "
            "synchronize_batches=False."
        )
    return CoordinationService(state.client)


def _moved(what: str) -> str:
    import jax

    return (
        f"JAX {jax.__version__} does not have its coordination service where jaxiter looks for it: "
        f"{what}. Use a version of jaxiter made for this JAX, or pass synchronize_batches=False."
    )


def _unreachable(error: RuntimeError) -> RendezvousError:
    return RendezvousError(
        f"JAX's coordination service cannot be used (process 0, which hosts it, may be gone): "
        f"{error}"
    )


class Board:
    """The messages of one epoch of one iterator, as one process sees them.

    Keys: `<path>/r/<process>/<block>/<number>` for reports, `<path>/d/<block>/<number>` for
    decisions, `<path>/gone` for the number of processes that are past all of it. A block of keys is
    deleted at once by process 0 when their readers are past it; what is left, by the last process
    that leaves. So the number of keys stays bounded, at a small fraction of a call a message.
    """

    def __init__(self, store: Store, path: str, process: int, processes: int) -> None:
        self._store = store
        self._path = path
        self._process = process
        self._processes = processes
        self._block = max(2, 64 // processes)
        self._reports_sent = 0
        self._decisions_sent = 0
        self._decisions_read = 0
        self._decision_blocks_gone = 0
        self._reports_read = [0] * processes
        self._report_blocks_gone = [0] * processes

    def send_report(self, text: str) -> None:
        """Write this process's next report."""
        self._store.set(self._report_key(self._process, self._reports_sent), text)
        self._reports_sent += 1

    def next_report(self, process: int, timeout_s: float) -> str | None:
        """Return a process's next report, None if it does not come in time; on process 0."""
        number = self._reports_read[process]
        text = self._store.get(self._report_key(process, number), timeout_s)
        if text is not None:
            self._read_up_to(process, number + 1)
        return text

    def new_reports(self) -> dict[int, list[str]]:
        """Return the reports that came since, in order, of each process; on process 0."""
        found: dict[int, list[tuple[int, str]]] = {}
        for key, text in self._store.list(f"{self._path}/r").items():
            process, number = _numbers(key)
            if number >= self._reports_read[process]:
                found.setdefault(process, []).append((number, text))
        for process, reports in found.items():
            reports.sort()
            self._read_up_to(process, reports[-1][0] + 1)
        return {process: [text for _, text in reports] for process, reports in found.items()}

    def announce(self, text: str, seen_by_all: int = 0) -> None:
        """Write the next decision, and delete those that all have read; on process 0."""
        self._store.set(self._decision_key(self._decisions_sent), text)
        self._decisions_sent += 1
        while self._decision_blocks_gone < seen_by_all // self._block:
            self._store.delete(f"{self._path}/d/{self._decision_blocks_gone}")
            self._decision_blocks_gone += 1

    def next_decision(self, timeout_s: float) -> str | None:
        """Return the next decision, None if it does not come in time."""
        text = self._store.get(self._decision_key(self._decisions_read), timeout_s)
        self._decisions_read += text is not None
        return text

    def leave(self) -> None:
        """Say that this process is past all messages; the last one deletes them."""
        if self._store.count(f"{self._path}/gone") >= self._processes:
            self._store.delete(self._path)

    def _read_up_to(self, process: int, number: int) -> None:
        self._reports_read[process] = number
        while self._report_blocks_gone[process] < number // self._block:
            gone = self._report_blocks_gone[process]
            self._store.delete(f"{self._path}/r/{process}/{gone}")
            self._report_blocks_gone[process] += 1

    def _report_key(self, process: int, number: int) -> str:
        return f"{self._path}/r/{process}/{number // self._block}/{number}"

    def _decision_key(self, number: int) -> str:
        return f"{self._path}/d/{number // self._block}/{number}"


def _numbers(report_key: str) -> tuple[int, int]:
    *_, process, _, number = report_key.split("/")
    return int(process), int(number)
