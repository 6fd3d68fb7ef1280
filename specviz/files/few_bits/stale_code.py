"""Compiled code that numba keeps beside its sources, removed once any of them has changed."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

CACHE = "__pycache__"
"""The folder beside a source file where numba keeps the code that it compiled."""

MARK = "compiled-from"
"""The name of the file there that holds the digest of all sources."""


def forget_stale_code(folder: Path, *called: Path) -> None:
    """Remove what numba has kept of the modules of a folder, unless it was made from the sources
    that are there now. Call it before the first compiled call of a process.

    called: folders with functions that the compiled code calls. numba keeps compiled functions
    beside their source file and compiles them anew when that file has changed, but not when a
    function that they call has changed in another file. After an update of a checkout, a pass could
    thus be made of old and of new code.
    """
    cache = folder / CACHE
    mark = cache / MARK
    digest = hashlib.sha256()
    for path in sorted(path for place in (folder, *called) for path in place.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    sources = digest.hexdigest()
    # Where the folder cannot be written, numba keeps its code elsewhere, and all sources are
    # installed, and so dated, together.
    with contextlib.suppress(OSError):
        if marked_sources(mark) == sources:
            return
        cache.mkdir(exist_ok=True)
        for path in (*cache.glob("*.nbi"), *cache.glob("*.nbc"), *cache.glob("tried-*")):
            path.unlink(missing_ok=True)  # another process may do the same
        mark.write_text(sources, "ascii")


def marked_sources(mark: Path) -> str | None:
    """The digest that a mark holds, if there is one."""
    try:
        return mark.read_text("ascii")
    except (OSError, ValueError):
        return None
