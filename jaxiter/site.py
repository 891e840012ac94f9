"""Where in the stream a fault is: the process and its batch."""

from typing import NamedTuple

from jaxiter.errors import DataError


class Site(NamedTuple):
    """A batch of one process; errors about data are made here, so that all name it alike.

    Attributes:
        process: The process's index, as `jax.process_index()` gives it.
        batch: The position of the batch in this process's epoch, from 0.
    """

    process: int
    batch: int

    def error(self, column: str | None, problem: str) -> DataError:
        """Return the error for `problem` with `column` (None: the batch as a whole)."""
        subject = "" if column is None else f"{label(column)}: "
        return DataError(
            f"process {self.process}, batch {self.batch}: {subject}{problem}",
            column=column,
            process=self.process,
            batch=self.batch,
        )


def label(column: str) -> str:
    """Return `column` in words; the name of a bare array is empty."""
    return f"column {column!r}" if column else "the array"
