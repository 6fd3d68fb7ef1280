"""The published pair that a developer has fetched, for tests that need the real one.

Other tests never see it: `conftest.py` names an empty folder for fetched models, and keeps the
developer's own in a variable that only this module reads.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specviz.files.model_files import is_published, models_folder
from specviz.pairs.table import named_pair

NAME = "qwen2.5-coder-1.5b"
OWN = "SPECVIZ_TEST_MODELS"
NOWHERE = Path("/nonexistent/models")


def own_folder() -> Path:
    """The developer's folder of fetched models."""
    return models_folder()


def fetched_files() -> tuple[Path, Path]:
    """The GGUF files of target and draft; skips the test if they are missing."""
    pair = named_pair(NAME)
    assert pair is not None
    folder = Path(os.environ[OWN])
    target, draft = (folder / file.name for file in pair.files)
    for path, file in zip((target, draft), pair.files, strict=True):
        if not path.is_file() or not is_published(path, file):
            pytest.skip(f"'python -m specviz fetch {NAME}' downloads the pair that this needs")
    return target, draft
