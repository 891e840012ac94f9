"""What a process says and does once it knows how the epoch ends."""

import logging

from jaxiter.actions import Abort, Action, Log
from jaxiter.agreement import Final
from jaxiter.deciding import Timing
from jaxiter.errors import Note

_LEFT_GRACE_S = 2.0  # all may be leaving at the same batch, which is nobody's fault


class Aftermath:
    """Watches a consumer that may be stuck in its own step since a peer was lost.

    Args:
        final: How the epoch ends.
        now: When this process learnt it, in seconds.
        process: This process's index.
        timing: With what to do on a loss.
    """

    def __init__(self, final: Final, now: float, *, process: int, timing: Timing) -> None:
        self._error = final.error
        self._took = _taken_by_lost_peer(final, process)
        self._since = now
        self._timing = timing
        self._told = False
        self._aborted = False

    @property
    def settled(self) -> bool:
        """Whether nothing will come of it any more, as long as the consumer does nothing."""
        if self._took is None:
            return True
        return self._told and not self._timing.abort_on_loss

    def watch(self, taken: int, waits: bool, away_since: float, now: float) -> list[Action]:
        """Return what is to be done now.

        Args:
            taken: Batches that the consumer has taken.
            waits: Whether it is in `next()`.
            away_since: When it last came out of there.
            now: Seconds.
        """
        if self._took is None or self._error is None:
            return []
        actions: list[Action] = []
        ahead = taken + waits > self._took  # so not all are leaving at the same batch
        if not self._told and (ahead or now - self._since >= _LEFT_GRACE_S):
            self._told = True
            actions.append(Log(logging.WARNING, self._error.message))
        grace_s = self._timing.abort_grace_s if ahead else self._timing.timeout_s
        late = now - max(self._since, away_since) >= grace_s
        if self._timing.abort_on_loss and not waits and late and not self._aborted:
            self._aborted = True
            actions.append(
                Abort(
                    f"{self._error.message} This process has been in its own step for "
                    f"{grace_s:g} s since; on_peer_loss='abort' ends it."
                )
            )
        return actions


def _taken_by_lost_peer(final: Final, process: int) -> int | None:
    """Return how many batches a lost peer had taken, -1 if unknown; None if none is lost."""
    if final.left is not None:
        return None if final.left[0] == process else final.left[1]
    lost = final.error is not None and final.error.kind == "SyncTimeoutError"
    return -1 if lost else None


def end_logs(final: Final, batches: int, *, process: int, many_rows: int) -> list[Log]:
    """Return what is told of a regular end: once, by process 0.

    Args:
        final: How the epoch ends.
        batches: How many there were.
        process: This process's index.
        many_rows: As many dropped rows are worth a warning.
    """
    if final.error is not None:
        return []
    dropped = final.dropped
    news = logging.WARNING if process == 0 else logging.DEBUG
    if batches == 0:
        left_out = f" drop_last left out at least {dropped} rows." if dropped else ""
        return [Log(news, f"the epoch has no batches.{left_out}")]
    if not dropped:
        return []
    message = (
        f"drop_last left out at least {dropped} rows of all processes, after {batches} batches."
    )
    return [Log(news if dropped >= many_rows else min(news, logging.INFO), message)]


def idle_failure_log(final: Final, batches: int, failure: Note | None) -> list[Log]:
    """Return what is told of a failure that stops nothing, as it is at or beyond the end."""
    if failure is None or final.error is not None:
        return []
    return [
        Log(
            logging.WARNING,
            f"a failure beyond the agreed end, batch {batches}, stops nothing: {failure.message}",
        )
    ]
