"""Where the repository and the modules beside this one lie."""

from pathlib import Path

HELPERS = Path(__file__).resolve().parent
ROOT = HELPERS.parent.parent
