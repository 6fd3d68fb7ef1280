"""The log: no secrets in it, and no visitor's text that forges a line or drives a terminal."""

from __future__ import annotations

import logging
import os
import re
import traceback

from .environment import AUTH

SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", AUTH.name)
"""Variables whose values are nobody's business; of NAME:PASSWORD, the password is."""

SHORTEST = 4  # characters; to hide less than that would make a log unreadable
HIDDEN = "[secret]"
_CONTROL = re.compile(r"[^\S ]|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


class DiscreetFormatter(logging.Formatter):
    """A formatter that hides secrets, and shows control characters as escapes.

    Line ends stay in tracebacks, whose lines are indented, and nowhere else.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        for secret in secrets_here():
            text = text.replace(secret, HIDDEN)
        return text

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _CONTROL.sub(_escaped, record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:
        text = "".join(traceback.format_exception(*ei)).rstrip()  # type: ignore[misc]
        lines = (_CONTROL.sub(_escaped, line) for line in text.split("\n"))
        return "\n".join("    " + line for line in lines)


def set_up_logging() -> None:
    """Log to stderr, discreetly."""
    handler = logging.StreamHandler()
    handler.setFormatter(DiscreetFormatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)


def secrets_here() -> list[str]:
    """What must not be shown, the longest first."""
    values = [os.environ.get(name, "") for name in SECRETS]
    values.append(os.environ.get(AUTH.name, "").partition(":")[2])  # even of one that is refused
    return sorted({value for value in values if len(value) >= SHORTEST}, key=len, reverse=True)


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()
