"""Compiled code of earlier sources, which numba would go on using.

numba keeps compiled functions beside their source file and compiles them anew when that file has
changed, but not when a function that they call has changed in another file. After an update of a
checkout, a pass could thus be made of old and of new code.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

HERE = Path(__file__).resolve().parent


def forget_stale_code(folder: Path = HERE) -> None:
    """Remove what numba has kept of the modules of a folder, unless it was made from the sources
    that are there now. Call it before the first compiled call of a process."""
    kept = folder / "__pycache__"
    mark, sources = kept / "compiled-from", _digest(folder)
    # Where the folder cannot be written, numba keeps its code elsewhere, and all sources are
    # installed, and so dated, together.
    with contextlib.suppress(OSError):
        if mark.is_file() and mark.read_text("ascii") == sources:
            return
        kept.mkdir(exist_ok=True)
        for path in (*kept.glob("*.nbi"), *kept.glob("*.nbc")):
            path.unlink(missing_ok=True)  # another process may do the same
        mark.write_text(sources, "ascii")


def _digest(folder: Path) -> str:
    made = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        made.update(path.name.encode() + b"\0" + path.read_bytes())
    return made.hexdigest()
