"""What became of the rows of an epoch, and where its time went."""

from dataclasses import dataclass


@dataclass
class EpochStats:
    """One epoch of this process. While it runs, `read = delivered + held`.

    At its end `held` is 0, and `read = delivered + dropped + discarded`. Rows are counted when they
    leave the host stage as a batch; padding is not counted.

    Attributes:
        epoch: From 0.
        state: `running`, `ended`, `failed` or `closed`.
        rows_read: Rows that the host stage has made batches of.
        rows_delivered: Rows in batches that `next()` has returned.
        rows_dropped: Rows that `drop_last` left out.
        rows_held: Rows read and not yet delivered.
        rows_discarded: Rows read and not delivered because the epoch failed or was closed.
        batches_delivered: Batches that `next()` has returned, those of padding included.
        bytes_delivered: Bytes put on this process's devices for them, padding included.
        source_s: Seconds that the reader waited on the source and the collate function.
        agreement_s: Seconds that batches stood ready while nothing was decided about them.
        transfer_s: Seconds in which batches were put on devices.
        consumer_s: Seconds that finished batches waited because the device queue was full.
        next_s: Seconds that `next()` waited.
    """

    epoch: int
    state: str = "running"
    rows_read: int = 0
    rows_delivered: int = 0
    rows_dropped: int = 0
    rows_held: int = 0
    rows_discarded: int = 0
    batches_delivered: int = 0
    bytes_delivered: int = 0
    source_s: float = 0.0
    agreement_s: float = 0.0
    transfer_s: float = 0.0
    consumer_s: float = 0.0
    next_s: float = 0.0

    def stop(self, state: str, dropped: bool) -> None:
        """Close the books: what is still held is dropped or discarded."""
        if self.state != "running":
            return
        self.state = state
        if dropped:
            self.rows_dropped = self.rows_held
        else:
            self.rows_discarded = self.rows_held
        self.rows_held = 0
