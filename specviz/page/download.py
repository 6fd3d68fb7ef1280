"""What the menu "Take away" asks of the server: the shown run as a page or as tables."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..errors import TraceError
from ..report.html import standalone_html
from ..report.tables import rounds_csv, tokens_csv
from ..trace import Trace
from ..trace.recording import MOST_UNPACKED, read_recording

FORMS: dict[str, tuple[str, Callable[[Trace], str]]] = {
    "html": (".html", standalone_html),
    "tokens": ("-tokens.csv", tokens_csv),
    "rounds": ("-rounds.csv", rounds_csv),
}
"""Name -> how the file's name ends, and what writes it."""


def taker() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function for the player: a trace, as text, becomes a file's text or a sentence."""
    one_at_a_time = threading.Lock()

    # A function and not a method, for Gradio marks it; one argument, for Gradio passes one.
    def take_away(asked: dict[str, Any]) -> dict[str, Any]:
        try:
            suffix, write = _form(asked)
            with one_at_a_time:  # reading a long run takes time from the engine
                return {"suffix": suffix, "text": write(_trace(asked))}
        except TraceError as error:
            return {"error": str(error)}

    return take_away


def _form(asked: Any) -> tuple[str, Callable[[Trace], str]]:
    form = asked.get("form") if isinstance(asked, dict) else None
    if not isinstance(form, str) or form not in FORMS:
        raise TraceError(f"a run can be taken away as {', '.join(FORMS)} and as nothing else.")
    return FORMS[form]


def _trace(asked: dict[str, Any]) -> Trace:
    """The trace that the browser shows. It comes from a stranger, so it is read as one's file."""
    text = asked.get("trace")
    if not isinstance(text, str):
        raise TraceError("the run did not arrive; try again.")
    raw = text[: MOST_UNPACKED + 1].encode("utf-8", errors="replace")
    return read_recording(raw, most_packed=MOST_UNPACKED)
