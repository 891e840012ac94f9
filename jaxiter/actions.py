"""What a state machine asks of whoever drives it."""

from dataclasses import dataclass

from jaxiter.messages import Decision, Report


@dataclass(frozen=True)
class Send:
    """Give this report to process 0."""

    report: Report


@dataclass(frozen=True)
class Announce:
    """Give this decision to all other processes."""

    decision: Decision


@dataclass(frozen=True)
class Log:
    """Write this to the log."""

    level: int
    message: str


@dataclass(frozen=True)
class Abort:
    """End this process: a peer is lost, and it is stuck in its own step."""

    message: str


Action = Send | Announce | Log | Abort
