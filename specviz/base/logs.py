"""The log: our lines and those of libraries in one form, text or JSON, without secrets and without
a visitor's text that forges a line or drives a terminal."""

from __future__ import annotations

import json
import logging
import os
import re
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any

from .variables import AUTH, LOG

REQUEST: ContextVar[str] = ContextVar("REQUEST", default="")
"""The id of the request that is being answered, or empty. The client finds it in its answer."""

SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", AUTH.name)
"""Variables whose values are nobody's business; of NAME:PASSWORD, the password is."""

SHORTEST = 4  # characters; to hide less than that would make a log unreadable
HIDDEN = "[secret]"
_CONTROL = re.compile(r"[^\S ]|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


MOST_LOGGED = 500  # characters


def brief(error: BaseException) -> str:
    """An error that a stranger caused, for the log: one line, and not all of a long one."""
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= MOST_LOGGED else text[:MOST_LOGGED] + " ..."


class DiscreetFormatter(logging.Formatter):
    """A formatter that hides secrets, and shows control characters as escapes.

    Line ends stay in tracebacks, whose lines are indented, and nowhere else.
    """

    def format(self, record: logging.LogRecord) -> str:
        return _without_secrets(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        request = REQUEST.get()
        record.message = _escaped(f"[{request}] {record.message}" if request else record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join("    " + _escaped(line) for line in lines)


class JsonFormatter(logging.Formatter):
    """A formatter that writes an object per line and hides secrets: time (UTC), level, logger,
    message, and, where there are any, request (its id) and exception (the traceback)."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        fields = {
            "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if REQUEST.get():
            fields["request"] = REQUEST.get()
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        # In the texts: in JSON a secret may look different.
        return json.dumps({name: _without_secrets(text) for name, text in fields.items()})


def set_up_logging() -> None:
    """Log to stderr in the form that SPECVIZ_LOG asks for. Raises `SettingsError`."""
    handler = logging.StreamHandler()
    if LOG.read() == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(DiscreetFormatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    logging.getLogger("httpx").setLevel(logging.WARNING)


def adopt_libraries() -> None:
    """Send what libraries log to our handler. To be called again after others were imported: some
    bring a handler of their own, which knows no secrets."""
    for logger in list(logging.root.manager.loggerDict.values()):
        if not isinstance(logger, logging.Logger):
            continue
        for handler in list(logger.handlers):
            if type(handler) is logging.StreamHandler:
                logger.removeHandler(handler)
                logger.propagate = True


def _without_secrets(text: str) -> str:
    secrets = [os.environ.get(name, "") for name in SECRETS]
    _, _, password = os.environ.get(AUTH.name, "").partition(":")  # even if it is refused
    secrets.append(password)
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, HIDDEN)
    return text


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
