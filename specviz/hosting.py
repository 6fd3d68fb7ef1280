"""Where the program runs, as far as its environment tells."""

from __future__ import annotations

import os


def on_zerogpu() -> bool:
    """Whether this is a Space that is lent a GPU for one call at a time."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
