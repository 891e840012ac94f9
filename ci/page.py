"""A run as one page. Pure."""

from ci.record import Record


def as_page(record: Record) -> str:
    """The page as text."""
    return record.headline
