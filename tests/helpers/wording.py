"""A second implementation of the page's texts for numbers and tokens."""

from __future__ import annotations

import re

# What trim() takes off in a browser; strip() without a list takes off other characters as well.
BLANKS = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"
BLANKS += "".join(map(chr, range(0x2000, 0x200B)))


def chance(value: float) -> str:
    """Write a probability."""
    hundred = 100 * value
    if value > 0 and hundred < 0.1:
        return "< 0.1 %"
    if value < 1 and hundred > 99.9:
        return "> 99.9 %"
    whole = value in (0.0, 1.0) or 10 <= hundred <= 99
    return f"{hundred:.0f} %" if whole else f"{hundred:.1f} %"


def visible(text: str) -> str:
    """Write a token as a word."""
    if not text:
        return "◌"
    marked = text.replace("\n", "¶")
    if text.strip(BLANKS):
        return marked.strip(BLANKS)
    return re.sub(f"[{BLANKS}]+", spaces, marked.replace("\t", "⇥"))


def spaces(run: re.Match[str]) -> str:
    """Write spaces in a row."""
    count = len(run[0])
    return f"␣×{count}" if count > 4 else "␣" * count


def milliseconds(seconds: float) -> str:
    """Write a time."""
    value = 1000 * seconds
    return f"{value:.{3 if value < 0.1 else 2 if value < 100 else 0}f} ms"
