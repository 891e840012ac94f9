"""How long cases take: from what was measured of their kind. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ci.known import Known
from ci.ordering import known_to_hang
from conformance.plan import Planned

#: Seconds before anything was measured, on two cores: by kind of source and of case.
PRIOR_S = {
    ("memory", "plain"): 0.2,
    ("memory", "fresh"): 3.0,
    ("memory", "hang"): 8.0,
    ("ray", "plain"): 2.0,
    ("ray", "fresh"): 8.0,
    ("ray", "hang"): 12.0,
}
#: How many measured cases weigh as much as the prior.
_WEIGHT = 3


def kind_of(planned: Planned, known: Known) -> tuple[str, str]:
    """What tells costs apart: the source; whether the case hangs, or wants fresh processes."""
    if known_to_hang(planned, known):
        return planned.kind, "hang"
    fresh = planned.case.spoils or planned.case.patience_s > 0
    return planned.kind, "fresh" if fresh else "plain"


class Costs:
    """Costs of kinds of cases, which get better as cases end."""

    def __init__(self, kinds: Mapping[str, tuple[str, str]]) -> None:
        """``kinds`` is the kind of each case by its key."""
        self._kinds = kinds
        self._seen: dict[tuple[str, str], list[float]] = defaultdict(list)

    def saw(self, key: str, duration_s: float) -> None:
        """Learn from a case that has ended."""
        if key in self._kinds:
            self._seen[self._kinds[key]].append(duration_s)

    def of(self, key: str) -> float:
        """Seconds that a case is likely to take."""
        kind = self._kinds[key]
        seen = self._seen[kind]
        return (sum(seen) + PRIOR_S[kind] * _WEIGHT) / (len(seen) + _WEIGHT)

    def left_s(self, keys: Iterable[str]) -> float:
        """Seconds that these cases are likely to take, one after the other."""
        return sum(self.of(key) for key in keys)
