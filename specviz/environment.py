"""What the program finds around it: its folders, and where it runs."""

from __future__ import annotations

import os
from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "assets"
BUILTIN = "builtin"
"""The name of the pair in `assets/pair`."""


def on_zerogpu() -> bool:
    """Whether this is a Space that is lent a GPU for one call at a time."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
