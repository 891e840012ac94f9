"""Start N JAX processes as one gang, and say where each rank stands."""

from harness.gang import Gang, GangStartError, PrepareError
from harness.outcome import Died, Hung, Outcome, Raised, Returned, Undecided
from harness.records import Event
from harness.verdict import Verdict

__all__ = [
    "Died",
    "Event",
    "Gang",
    "GangStartError",
    "Hung",
    "Outcome",
    "PrepareError",
    "Raised",
    "Returned",
    "Undecided",
    "Verdict",
]
