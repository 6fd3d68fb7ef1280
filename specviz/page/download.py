"""Downloads from the menu "Take away": the shown run as a page or as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import TraceError
from ..runs.reading import FORMS
from ..runs.recording import MOST_UNPACKED
from .reader import Reader


def taker(reader: Reader) -> Callable[[dict[str, Any]], Any]:
    """The server function that turns a trace, as text, into the text of a file or a sentence."""

    # A function and not a method, because Gradio marks it; Gradio passes exactly one argument.
    def take_away(asked: dict[str, Any]) -> Any:
        try:
            return reader.answer(_form(asked), _trace(asked))
        except TraceError as error:
            return {"error": str(error)}

    return take_away


def _form(asked: Any) -> str:
    form = asked.get("form") if isinstance(asked, dict) else None
    if not isinstance(form, str) or form not in FORMS:
        raise TraceError(f"a run can be taken away as {', '.join(FORMS)} and as nothing else.")
    return form


def _trace(asked: dict[str, Any]) -> bytes:
    """The trace that the browser shows. It is checked as strictly as a file from a visitor."""
    text = asked.get("trace")
    if not isinstance(text, str):
        raise TraceError("the run did not arrive; try again.")
    return text[: MOST_UNPACKED + 1].encode("utf-8", errors="replace")
