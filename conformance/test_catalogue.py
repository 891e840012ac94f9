"""Public reports of hangs and damaged batches, one case each, named after its report."""

from conformance.catalogue import cases
from conformance.deciding import Decide
from conformance.plan import Planned

__all__ = ["cases"]


def test_catalogue(planned: Planned, decide: Decide) -> None:
    """What was reported does not happen."""
    decide(planned)
