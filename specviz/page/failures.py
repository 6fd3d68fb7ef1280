"""Turn failures into sentences; their details go to the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

import gradio as gr

from ..base.errors import SpecvizError
from ..base.logs import brief
from ..worker.failures import FAILED
from .security.requests import NOT_OURS

log = logging.getLogger(__name__)

PageQuestion: TypeAlias = Callable[[dict[str, Any]], Any]
"""A question of the page: it takes one object, and the answer is JSON."""

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""Errors that invalid values in a request cause."""


def sentence(text: str) -> gr.Error:
    """An error that shows this sentence and no traceback."""
    return gr.Error(text, print_exception=False)


def answering(question: PageQuestion) -> PageQuestion:
    """Wrap a question so that it answers `{"error": sentence, "over": True}` if it fails."""

    @wraps(question)
    def answer(request: dict[str, Any]) -> Any:
        try:
            return question(request)
        except SpecvizError as error:
            log.info("a question was refused: %s", brief(error))
            return {"error": str(error), "over": True}
        except MALFORMED as error:
            log.info("a question was malformed: %s", brief(error))
            return {"error": NOT_OURS, "over": True}
        except Exception:
            log.exception("a question could not be answered")
            return {"error": FAILED, "over": True}

    return answer
