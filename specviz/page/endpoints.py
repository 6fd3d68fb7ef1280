"""Endpoints for programs, in Gradio's queue: each waits for a reader of its results."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, nullcontext
from inspect import Parameter, Signature
from typing import Any

import gradio as gr
from starlette.concurrency import run_in_threadpool

from ..base.errors import SpecvizError
from ..base.logs import brief
from ..worker.failures import FAILED
from .failures import sentence
from .security.owner import SEES_MODELS, sees_models
from .security.requests import note
from .security.sessions import Sessions

log = logging.getLogger(__name__)

Results = AsyncGenerator[Any, None]


class Endpoints:
    """Adds endpoints to a server. programs: their parameters by name, in order."""

    def __init__(self, server: gr.Server, sessions: Sessions, programs: dict[str, Signature]):
        self._server = server
        self._sessions = sessions
        self._programs = programs
        self._described: dict[str, tuple[str, Signature]] = {}

    def described(self) -> dict[str, tuple[str, Signature]]:
        """Return the description and the parameters of each endpoint."""
        return dict(self._described)

    def add(self, function: Callable[..., Any]) -> None:
        """Add a function, which may block, as an endpoint of its name."""

        async def answer(request: gr.Request, *values: Any) -> Any:
            _note(request)
            results = _as_sentences(_one_result(function, values))
            read = self._sessions.stream_results(str(request.session_hash), results)
            async with aclosing(read) as answers:
                return await anext(answers, None)

        self._register(answer, function, inspect.signature(function, eval_str=True))

    def add_stream(
        self,
        function: Callable[..., Results],
        *,
        places: asyncio.Semaphore,
        signature: Signature | None = None,
    ) -> None:
        """Add a function that returns an asynchronous generator as an endpoint of its name. places:
        the most calls at a time. signature: its parameters, if they differ from the function's own.
        """

        async def stream(request: gr.Request, *values: Any) -> Results:
            _note(request)
            results = _as_sentences(function(*values), places)
            read = self._sessions.stream_results(str(request.session_hash), results)
            async with aclosing(read) as answers:
                async for answer in answers:
                    yield answer

        own_signature = signature or inspect.signature(function, eval_str=True)
        self._register(stream, function, own_signature)

    def _register(self, endpoint: Any, function: Callable[..., Any], signature: Signature) -> None:
        """Have Gradio serve an endpoint under the name of a function."""
        endpoint.__name__ = function.__name__
        endpoint.__doc__ = function.__doc__
        # Gradio reads both, and shows them to programs.
        request_parameter = Parameter(
            "request", Parameter.POSITIONAL_OR_KEYWORD, annotation=gr.Request
        )
        parameters = [request_parameter, *signature.parameters.values()]
        endpoint.__signature__ = signature.replace(parameters=parameters)
        endpoint.__annotations__ = {
            parameter.name: parameter.annotation for parameter in parameters
        }
        endpoint.__annotations__["return"] = signature.return_annotation
        self._programs[function.__name__] = signature
        description = inspect.getdoc(function) or ""
        self._described[function.__name__] = (description, signature)
        self._server.api(endpoint, name=function.__name__, concurrency_limit=None)


async def _as_sentences(results: Results, places: asyncio.Semaphore | None = None) -> Results:
    """Yield results, once there is a place for them. Raises `gr.Error` with a sentence instead
    of any other error."""
    try:
        async with places or nullcontext(), aclosing(results):
            async for result in results:
                yield result
    except gr.Error:
        raise
    except SpecvizError as error:
        log.info("a call was refused: %s", brief(error))
        raise sentence(str(error)) from None
    except Exception:
        log.exception("an endpoint failed")
        raise sentence(FAILED) from None


async def _one_result(function: Callable[..., Any], values: tuple[Any, ...]) -> Results:
    yield await run_in_threadpool(function, *values)


def _note(request: gr.Request) -> None:
    assert request.request is not None
    note(request.request.scope)
    SEES_MODELS.set(sees_models(request.request.scope))
