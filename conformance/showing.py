"""What commands print, whoever reads it."""

from __future__ import annotations

import os
import sys


def show(text: str) -> bool:
    """Print a text; return whether anybody may read more: none does once `head` has enough."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
