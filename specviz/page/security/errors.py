"""Failures as sentences: of the page's events, of its server functions, of the API."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

import gradio as gr

from ...errors import SpecvizError
from ...worker.failures import FAILED
from .bodies import NOT_OURS

log = logging.getLogger(__name__)

Answer = Callable[[dict[str, Any]], Any]


class Page(gr.Blocks):
    """Blocks whose events fail with a sentence: the log has the rest."""

    async def preprocess_data(self, *args: Any, **kwargs: Any) -> Any:
        """The values of an event, read. Whoever sends others than the page's hears so."""
        try:
            return await super().preprocess_data(*args, **kwargs)
        except Exception:
            log.info("an event came with values that it cannot have", exc_info=True)
            raise sentence(NOT_OURS) from None

    async def process_api(self, *args: Any, **kwargs: Any) -> Any:
        """One event, or the next value of one."""
        try:
            return await super().process_api(*args, **kwargs)
        except gr.Error:
            raise
        except Exception:
            log.exception("an event failed")
            raise sentence(FAILED) from None


def sentence(text: str) -> gr.Error:
    """An error that shows this sentence and leaves no traceback anywhere."""
    return gr.Error(text, print_exception=False)


def answering(function: Answer) -> Answer:
    """A server function whose failures are answers: `{"error": sentence, "over": True}`."""

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
