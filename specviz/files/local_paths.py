"""Models on this machine: the folder or the GGUF file of a name."""

from __future__ import annotations

import re
from pathlib import Path

from .local_models import is_stored, stored_path

GGUF = ".gguf"
MAGIC = b"GGUF"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?", re.ASCII)


def local_path(name: str) -> Path | None:
    """The folder or the GGUF file with this name, or None. Names of other programs' stores
    count."""
    if is_stored(name):
        return stored_path(name)
    try:
        path = Path(name).expanduser()
        if path.is_dir() or (path.is_file() and _is_gguf(path)):
            return path
    except (OSError, RuntimeError, ValueError):  # too long, unknown user, null byte
        return None
    return None


def _is_gguf(path: Path) -> bool:
    """Whether a file is GGUF by its suffix or by its first bytes: Ollama's files have no
    suffix."""
    if path.suffix.lower() == GGUF:
        return True
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def local_file(name: str) -> Path | None:
    """The GGUF file with this name, if there is one."""
    path = local_path(name)
    if path is None or not path.is_file():
        return None
    return path
