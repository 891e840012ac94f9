"""What the iterator raises, and how an error travels from the process it is about to all others.

All errors are `JaxIterError`s. What Ray's iterator reports as a `ValueError` is one here too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class JaxIterError(Exception):
    """Base of all errors that this package raises by itself.

    Attributes:
        process: Index of the process that the error is about, as `jax.process_index()` gives it;
            None if it is about no single one.
        batch: Position in the epoch, from 0, of the batch that the error is about, if any.
    """

    def __init__(
        self, message: str, *, process: int | None = None, batch: int | None = None
    ) -> None:
        super().__init__(message)
        self.process = process
        self.batch = batch


class OptionError(JaxIterError, ValueError):
    """An argument that cannot be used.

    Attributes:
        argument: Its name.
        value: What was given; on processes other than the one it was given to, its `repr`.
    """

    def __init__(
        self,
        message: str,
        *,
        argument: str | None = None,
        value: Any = None,
        process: int | None = None,
        batch: int | None = None,
    ) -> None:
        super().__init__(message, process=process, batch=batch)
        self.argument = argument
        self.value = value


class DataError(JaxIterError, ValueError):
    """Data that cannot be delivered unchanged.

    Attributes:
        column: Its path in the batch; None if the error is about the batch as a whole.
    """

    def __init__(
        self,
        message: str,
        *,
        column: str | None = None,
        process: int | None = None,
        batch: int | None = None,
    ) -> None:
        super().__init__(message, process=process, batch=batch)
        self.column = column


class MismatchError(JaxIterError, ValueError):
    """Processes disagree on what must be the same: options, schema, replicated rows, or place.

    The place is the iterator and the epoch in which a process is.
    """


class UnevenError(JaxIterError, ValueError):
    """Processes have different numbers of rows, and neither `drop_last` nor `paddings` is given."""


class SourceError(JaxIterError, RuntimeError):
    """The source or the collate function of one process raised.

    On that process the original exception is the `__cause__`.
    """


class PeerLeftError(JaxIterError, RuntimeError):
    """A process left its loop, alone, before the end of the epoch."""


class SyncTimeoutError(JaxIterError, TimeoutError):
    """A process was waited for longer than `sync_timeout_s`, or shows no sign of life."""


class RendezvousError(JaxIterError, RuntimeError):
    """The service through which processes agree cannot be used."""


class ClosedError(JaxIterError, RuntimeError):
    """`next()` was called on an iterator that this process has closed."""


class SourceUsedError(JaxIterError, RuntimeError):
    """A source that can be read once was asked for another epoch."""


class InternalError(JaxIterError, RuntimeError):
    """The iterator itself failed; on the process where it did, the `__cause__` says how."""


_KINDS: dict[str, type[JaxIterError]] = {
    kind.__name__: kind
    for kind in (
        OptionError,
        DataError,
        MismatchError,
        UnevenError,
        SourceError,
        PeerLeftError,
        SyncTimeoutError,
        RendezvousError,
        ClosedError,
        SourceUsedError,
        InternalError,
    )
}
_LONGEST_MESSAGE = 4000  # characters; an error travels to every process


@dataclass(frozen=True)
class Note:
    """An error in a form that travels: from it, each process makes an error of the same kind.

    Attributes:
        kind: Name of a class of this module.
        details: Further keyword arguments of that class, such as `column`.
    """

    kind: str
    message: str
    process: int | None = None
    batch: int | None = None
    details: tuple[tuple[str, str | None], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value from which `from_json` makes an equal note."""
        return {
            "kind": self.kind,
            "message": self.message,
            "process": self.process,
            "batch": self.batch,
            "details": dict(self.details),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "Note":
        """Return the note that `to_json` described."""
        return Note(**{**value, "details": tuple(value["details"].items())})

    def error(self, cause: BaseException | None = None) -> JaxIterError:
        """Return the error, chained to `cause` if that is known here."""
        kind = _KINDS.get(self.kind, InternalError)
        error = kind(self.message, process=self.process, batch=self.batch, **dict(self.details))
        error.__cause__ = cause
        return error


def note_of(error: BaseException, process: int, batch: int) -> Note:
    """Return `error`, raised in `process` while it prepared `batch`, in the form that travels.

    An error of this package keeps its kind; any other is the source's, and becomes a `SourceError`.
    """
    if isinstance(error, JaxIterError) and type(error).__name__ in _KINDS:
        details: dict[str, str | None] = {}
        if isinstance(error, DataError):
            details["column"] = error.column
        if isinstance(error, OptionError):
            details["argument"] = error.argument
            details["value"] = _short(repr(error.value))
        return Note(
            type(error).__name__,
            _short(_with_process(str(error), process)),
            process if error.process is None else error.process,
            batch if error.batch is None else error.batch,
            tuple(details.items()),
        )
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Note(
        "SourceError",
        f"process {process}, batch {batch}: the source or the collate function raised "
        f"{_short(words)}. Its traceback is in the log of process {process}.",
        process,
        batch,
    )


def internal_note(error: BaseException, process: int, batch: int) -> Note:
    """Return an error of the iterator's own machinery in the form that travels."""
    if isinstance(error, JaxIterError):
        return note_of(error, process, batch)
    return Note(
        "InternalError",
        f"process {process}, batch {batch}: the iterator failed with {type(error).__name__}: "
        f"{_short(str(error))}. Its traceback is in the log of process {process}.",
        process,
        batch,
    )


def _with_process(message: str, process: int) -> str:
    return message if f"process {process}" in message else f"process {process}: {message}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 3] + "..."
