"""Texts of others on their way to a terminal, a pipe or a log: what would control a terminal is
shown as an escape, and signs that a stream cannot encode become plain ones."""

from __future__ import annotations

import codecs
import io
import re
import sys

DEGRADED = "specviz.degraded"
"""The name of our error handler, as the argument `errors` of a stream."""

# Characters that act instead of being seen: controls, of which some drive a terminal (ESC, and CSI
# as one character); separators of lines and paragraphs; what writes the text after it from right to
# left or ends that, so that a line reads as it is not (https://trojansource.codes); halves of a
# character, which no stream encodes. Joiners, soft hyphens and all kinds of spaces are text:
# Persian, emoji and typeset prose are made of them.
_ACTING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_ACTING_BUT_LINES = re.compile(f"(?![\n\t]){_ACTING.pattern}")

_PLAIN = {
    "✓": "+",
    "✗": "x",
    "✕": "x",
    "★": "*",
    "↳": ">",
    "·": ".",
    "│": "|",
    "⏎": "\\n",
    "⇥": "\\t",
    "█": "#",
    "░": ".",
    "–": "-",
    "−": "-",
    "…": "...",
    "’": "'",
    "“": '"',
    "”": '"',
    "×": "x",
    "≤": "<=",
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "τ": "tau",
}
"""What stands in the place of a sign of ours where a stream does not have it."""


def escaped(text: str, *, lines: bool = False) -> str:
    """The text with characters that would drive a terminal as escapes: ESC is the four characters
    "\\x1b". lines: whether ends of lines and tabs stay as they are."""
    acting = _ACTING_BUT_LINES if lines else _ACTING
    return acting.sub(lambda match: _escape(match.group()), text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def degrade_signs() -> None:
    """Let nothing that is printed from now on fail for the encoding of standard output and of
    standard error: a pipe of Windows, for example, has that of the country. Other settings of
    the streams stay."""
    codecs.register_error(DEGRADED, _degraded)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # and not what a test or a notebook put there
            stream.reconfigure(errors=DEGRADED)


def _degraded(error: UnicodeError) -> tuple[str, int]:
    """The error handler: a plain sign for each character that could not be encoded."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(_PLAIN.get(sign, "?") for sign in signs), error.end
