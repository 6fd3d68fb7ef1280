"""Safe output of texts that others wrote. Characters that control a terminal are shown as escapes,
and characters that a stream cannot encode are replaced by plain ones."""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .errors import OutputError

DEGRADED = "specviz.degraded"
"""The name of our error handler, as the argument `errors` of a stream."""

# Characters that act instead of being seen: controls, some of which drive a terminal (ESC, and CSI
# as one character); separators of lines and paragraphs; characters that write the following text
# from right to left or end that, so that a line is read in another order than it is stored
# (https://trojansource.codes); halves of a character, which no stream encodes. Joiners, soft
# hyphens and all kinds of spaces are text: Persian, emoji and typeset prose are made of them.
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
"""Replacements of our own signs for streams that cannot encode them."""


def escaped(text: str, *, lines: bool = False) -> str:
    r"""Replace characters that would drive a terminal by escapes: ESC becomes the four characters
    "\x1b". lines: whether line ends and tabs stay as they are."""
    acting = _ACTING_BUT_LINES if lines else _ACTING
    return acting.sub(lambda match: _escape(match.group()), text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def degrade_signs() -> None:
    """Keep printing from failing for the encoding of standard output or standard error: a pipe of
    Windows, for example, has the country's encoding. Other settings of the streams stay."""
    codecs.register_error(DEGRADED, _degraded)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # and not a test's or a notebook's own stream
            stream.reconfigure(errors=DEGRADED)


def _degraded(error: UnicodeError) -> tuple[str, int]:
    """The error handler: a plain sign for each character that could not be encoded."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(_PLAIN.get(sign, "?") for sign in signs), error.end


FULL_OR_BROKEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""Error numbers of a full or broken disk."""


class _CheckedOutput:
    """A stream that raises `OutputError` if it cannot be written. A closed pipe still raises
    `BrokenPipeError`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with _writing():
            return int(self._stream.write(text))

    def flush(self) -> None:
        with _writing():
            self._stream.flush()


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            f"standard output cannot be written ({error.strerror or error}): redirect it to a "
            "terminal, or to a file on a disk with free space."
        ) from error


@contextmanager
def checked_output() -> Iterator[None]:
    """Inside the block, raise `OutputError` if standard output cannot be written, such as a file
    on a full disk; at the latest at the block's end. Failed output is not written again."""
    stream = sys.stdout
    if stream is None:  # it was closed before the program began: nothing is printed
        yield
        return
    checked: Any = _CheckedOutput(stream)
    sys.stdout = checked
    try:
        try:
            yield
        finally:  # also after --help
            checked.flush()
    except (OutputError, BrokenPipeError):
        drop_output(stream)
        raise
    finally:
        sys.stdout = stream


def drop_output(stream: Any) -> None:
    """Redirect a stream that cannot be written to the null device: otherwise the interpreter would
    try again when it ends."""
    with suppress(OSError, ValueError):  # a test's stream has no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_error(text: str) -> None:
    """Print a line on standard error; do nothing if it cannot be written."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def writing_fault(error: OSError) -> str | None:
    """The sentence about a file that a full or broken disk did not take; None for another
    error."""
    if error.errno not in FULL_OR_BROKEN:
        return None
    name = error.filename or "a file"
    return f"{name} cannot be written ({error.strerror}): choose a path on a disk with free space."
