"""The record of a rank: one JSON line an event, written as it happens, readable after a SIGKILL.

Kind and fields of an event are free. `harness.verdict` and `harness.timeline` know these:

| kind | fields | meaning |
| --- | --- | --- |
| `phase` | `phase`, `batch` | the rank now is in this phase, until the next event of this kind |
| `batch` | `batch`, `shapes`, `dtypes` | it has this batch (from 0); global shapes, by column |
| `error` | `type`, `message`, `traceback` | it was caught, and ended what the rank did |
| `end` | | it has all batches of the epoch; with `type` and `message`, an error ended it |

Any event may have `batch`, `phase`, and `epoch` where there are several.
"""

from __future__ import annotations

import binascii
import json
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Event:
    """One line of a rank's record.

    Attributes:
        seq: 0 for the first event of a run.
        kind: what happened, in the words of whoever recorded it.
        t_s: seconds on the rank's monotonic clock.
        fields: JSON values as JSON gives them back (a tuple becomes a list); arrays are arrays.
    """

    seq: int
    kind: str
    t_s: float
    fields: dict[str, Any]

    @property
    def batch(self) -> int | None:
        """The number of the batch that it is about, where it says so."""
        return _whole(self.fields.get("batch"))

    @property
    def epoch(self) -> int:
        """The number of the epoch that it is about; 0 where it does not say."""
        return _whole(self.fields.get("epoch")) or 0

    @property
    def phase(self) -> str | None:
        """The phase that it is about, where it says so."""
        phase = self.fields.get("phase")
        return phase if isinstance(phase, str) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Clock:
    """What a rank's clocks said when a run began.

    Attributes:
        host: of two processes with the same, times on the monotonic clock can be compared.
        t_s: seconds on the monotonic clock.
        wall_s: seconds since 1970.
    """

    host: str
    t_s: float
    wall_s: float

    @classmethod
    def now(cls) -> Clock:
        """Read the clocks of this process."""
        return cls(_host(), time.monotonic(), time.time())


@cache
def _host() -> str:
    # One for each start of a machine's kernel, as its monotonic clock.
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


class Recorder:
    """Writes events to a file descriptor that was opened with O_APPEND, one write an event."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._seq = 0
        self._lock = threading.Lock()
        self._encode = json.JSONEncoder(default=_to_json, separators=(",", ":")).encode

    def restart(self) -> None:
        """Count from 0 again, and note the clocks: a new run begins."""
        with self._lock:
            self._seq = 0
            self._write(json.dumps(asdict(Clock.now())))

    def record(self, kind: str, fields: dict[str, Any]) -> None:
        """Append one event.

        Raises:
            TypeError: a field is neither a JSON value nor a numpy scalar or array.
        """
        with self._lock:
            try:
                line = self._encode([self._seq, kind, time.monotonic(), fields])
            except (TypeError, ValueError) as error:
                raise TypeError(f"record({kind!r}): {error}") from error
            self._write(line)
            self._seq += 1

    def _write(self, line: str) -> None:
        data = line.encode() + b"\n"
        written = os.write(self._fd, data)
        while written < len(data):
            written += os.write(self._fd, data[written:])


def parse(data: bytes) -> tuple[Event, ...]:
    """Read a record. A last line that a death cut short is left out."""
    return tuple(_event(line) for line in data.split(b"\n")[:-1] if not line.startswith(_CLOCK))


def parse_clock(data: bytes) -> Clock | None:
    """Read what the clocks said when the run began; `None` where the rank did not get so far."""
    end = data.find(b"\n")
    return Clock(**json.loads(data[:end])) if end >= 0 and data.startswith(_CLOCK) else None


_CLOCK = b'{"host":'


def _event(line: bytes) -> Event:
    try:
        seq, kind, t_s, fields = _decode(line.decode())
    except (ValueError, TypeError) as error:
        # Not ours, but evidence: a caller of the gang gets an outcome whatever a rank writes.
        return Event(-1, "unreadable", 0.0, {"line": repr(line[:200]), "error": str(error)})
    return Event(seq, kind, t_s, fields)


_ARRAY_KEYS = {"dtype", "shape", "base64"}


def _to_json(value: object) -> object:
    if isinstance(value, np.generic):
        item = value.item()
        return item if isinstance(item, bool | int | float | str) else float(item)
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise TypeError(f"an array of {array.dtype} cannot be recorded")
        # Extension types (bfloat16) have no typestring of their own: their name says what they are.
        dtype = array.dtype.name if array.dtype.isbuiltin == 2 else array.dtype.str
        content = binascii.b2a_base64(array.tobytes(), newline=False).decode()
        return {"dtype": dtype, "shape": array.shape, "base64": content}
    raise TypeError(f"a value of type {type(value).__name__} cannot be recorded")


def _from_json(value: dict[str, Any]) -> object:
    if value.keys() != _ARRAY_KEYS:
        return value
    array = np.frombuffer(binascii.a2b_base64(value["base64"]), _dtype(value["dtype"]))
    return array.reshape(value["shape"])


_decode = json.JSONDecoder(object_hook=_from_json).decode


def _dtype(name: str) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, name))
    return dtype
