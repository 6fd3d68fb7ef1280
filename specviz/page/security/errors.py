"""Failures of events, server functions and the API, shown as sentences."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import gradio as gr

from ...errors import SpecvizError
from ...worker.failures import FAILED
from .bodies import NOT_OURS

if TYPE_CHECKING:
    from ..queue import RunQueue

log = logging.getLogger(__name__)

Answer = Callable[[dict[str, Any]], Any]


class Page(gr.Blocks):
    """Blocks whose events fail with a sentence. The details are in the log. runs: its queue."""

    runs: RunQueue

    async def preprocess_data(self, *args: Any, **kwargs: Any) -> Any:
        """Read the values of an event; if the page cannot have sent them, the error says so."""
        try:
            return await super().preprocess_data(*args, **kwargs)
        except Exception:
            log.info("an event came with values that it cannot have", exc_info=True)
            raise sentence(NOT_OURS) from None

    async def process_api(self, *args: Any, **kwargs: Any) -> Any:
        """Handle an event, or compute its next value."""
        try:
            return await super().process_api(*args, **kwargs)
        except gr.Error:
            raise
        except Exception:
            log.exception("an event failed")
            raise sentence(FAILED) from None


def sentence(text: str) -> gr.Error:
    """An error that shows this sentence and no traceback."""
    return gr.Error(text, print_exception=False)


def answering(function: Answer) -> Answer:
    """A server function that answers `{"error": sentence, "over": True}` if it fails."""

    @wraps(function)
    def answer(asked: dict[str, Any]) -> Any:
        try:
            return function(asked)
        except SpecvizError as error:
            return {"error": str(error), "over": True}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            log.info("a question made no sense", exc_info=True)
            return {"error": NOT_OURS, "over": True}
        except Exception:
            log.exception("a question could not be answered")
            return {"error": FAILED, "over": True}

    return answer
