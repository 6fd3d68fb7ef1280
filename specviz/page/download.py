"""Downloads from the menu "Take away": the shown run as a page or as tables."""

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
"""By name: the end of the file's name, and the function that writes the text."""


def taker() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The server function that turns a trace, as text, into the text of a file or a sentence."""
    one_at_a_time = threading.Lock()

    # A function and not a method, because Gradio marks it; Gradio passes exactly one argument.
    def take_away(asked: dict[str, Any]) -> dict[str, Any]:
        try:
            suffix, write = _form(asked)
            with one_at_a_time:  # reading a long run takes a processor from the models
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
    """The trace that the browser shows. It is checked as strictly as a file from a visitor."""
    text = asked.get("trace")
    if not isinstance(text, str):
        raise TraceError("the run did not arrive; try again.")
    raw = text[: MOST_UNPACKED + 1].encode("utf-8", errors="replace")
    return read_recording(raw, most_packed=MOST_UNPACKED)
