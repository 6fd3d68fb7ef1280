"""The paths of the repository and of the folder of test helpers."""

from pathlib import Path

HELPERS = Path(__file__).resolve().parent
ROOT = HELPERS.parent.parent
