"""Where the repository keeps what is not code."""

from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "assets"
BUILTIN = "builtin"
"""The name of the pair in `assets/pair`."""
