"""Lines of texts that others wrote."""

from __future__ import annotations

import io


def lines_of(text: str) -> list[str]:
    """Split a text into lines without their ends, which are line feeds, carriage returns, or both.

    `str.splitlines` also cuts at form feeds and at the separators U+0085, U+2028 and U+2029, which
    are text within a prompt or a JSON string.
    """
    return [line.rstrip("\n") for line in io.StringIO(text, newline=None)]
