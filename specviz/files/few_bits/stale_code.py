"""Removal of code that numba has compiled and kept, once any of its sources has changed."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

CACHE = "__pycache__"
"""The folder next to a source file where numba keeps compiled code."""

MARK = "compiled-from"
"""The name of the file in it that holds the digest of all sources."""


def forget_stale_code(folder: Path, *called: Path) -> None:
    """Remove numba's compiled code of a folder's modules, unless it was made from the current
    sources. Call it before the first compiled call of a process.

    called: folders with functions that the compiled code calls. numba keeps compiled functions
    beside their source file and compiles them again when that file has changed, but not when a
    function that they call has changed in another file. After an update of a checkout, a pass
    could thus mix old and new code.
    """
    cache = folder / CACHE
    mark = cache / MARK
    digest = hashlib.sha256()
    paths: list[Path] = []
    for code_folder in (folder, *called):
        paths += code_folder.glob("*.py")
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    sources = digest.hexdigest()
    # If the folder cannot be written, numba keeps its code elsewhere. Then all sources were
    # installed together and have dates of one moment.
    with contextlib.suppress(OSError):
        if marked_sources(mark) == sources:
            return
        cache.mkdir(exist_ok=True)
        for path in (*cache.glob("*.nbi"), *cache.glob("*.nbc"), *cache.glob("tried-*")):
            path.unlink(missing_ok=True)  # another process may do the same
        mark.write_text(sources, "ascii")


def marked_sources(mark: Path) -> str | None:
    """The digest in a mark, or None."""
    try:
        return mark.read_text("ascii")
    except (OSError, ValueError):
        return None
