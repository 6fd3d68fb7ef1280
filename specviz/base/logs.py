"""The log: our lines and those of libraries in one form, text or JSON. Secrets are hidden, and a
visitor's text can neither forge a line nor drive a terminal."""

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
"""The id of the current request, or empty. The client finds the id in its answer."""

SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", AUTH.name)
"""Variables whose values are hidden; of NAME:PASSWORD, only the password."""

SHORTEST = 4  # characters; hiding shorter secrets would make a log unreadable
HIDDEN = "[secret]"
_CONTROL = re.compile(r"[^\S ]|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


MAX_LOGGED = 500  # characters


def brief(error: BaseException) -> str:
    """An error that a stranger caused, in one line of limited length for the log."""
    text = f"{type(error).__name__}: {error}"
    if len(text) > MAX_LOGGED:
        return text[:MAX_LOGGED] + " ..."
    return text


class DiscreetFormatter(logging.Formatter):
    """A formatter that hides secrets, and shows control characters as escapes.

    Line ends stay in tracebacks, whose lines are indented, and nowhere else.
    """

    def format(self, record: logging.LogRecord) -> str:
        return _without_secrets(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        request = REQUEST.get()
        if request:
            record.message = f"[{request}] {record.message}"
        record.message = _escaped(record.message)
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
        # Before the encoding: in JSON a secret may look different.
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
    """Send the messages of libraries to our handler. Call it again after further imports: some
    libraries bring their own handler, which hides no secrets."""
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
