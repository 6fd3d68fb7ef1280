"""Endpoints in Gradio's queue: what they need of a reader, of places and of threads.

An endpoint is written as a plain function or as a generator, which may block: each of its values is
made in a thread. While it waits for somebody who reads its results, it holds none.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from inspect import Parameter, Signature
from typing import Any

import gradio as gr
from anyio import CapacityLimiter, to_thread

from ..base.errors import SpecvizError
from ..base.logs import brief
from ..worker.failures import FAILED
from .failures import sentence
from .security.owner import SEES_MODELS, sees_models
from .security.requests import note
from .security.sessions import Sessions

log = logging.getLogger(__name__)

THREADS = 64  # for values of endpoints: a run that waits or races holds one
_END = object()


class Endpoints:
    """Adds endpoints to a server. programs: their parameters by name, in order."""

    def __init__(self, server: gr.Server, sessions: Sessions, programs: dict[str, Signature]):
        self._server = server
        self._sessions = sessions
        self._programs = programs
        self._threads = CapacityLimiter(THREADS)
        self._described: dict[str, tuple[str, Signature]] = {}

    def described(self) -> dict[str, tuple[str, Signature]]:
        """The public endpoints: what each does, and its parameters."""
        return dict(self._described)

    def add(
        self,
        function: Callable[..., Any],
        *,
        places: asyncio.Semaphore | None = None,
        is_public: bool = True,
        signature: Signature | None = None,
    ) -> None:
        """Add a function or a generator as an endpoint of its name.

        places: for its calls, if there are not enough for all. signature: its parameters, unless
        the function itself has them.
        """
        signature = signature or inspect.signature(function, eval_str=True)

        async def stream(request: gr.Request, *values: Any) -> AsyncGenerator[Any, None]:
            _note(request)
            results = self._limited(function, values, places)
            async for result in self._sessions.heard(str(request.session_hash), results):
                yield result

        async def answer(request: gr.Request, *values: Any) -> Any:
            _note(request)
            results = self._limited(function, values, places)
            heard = self._sessions.heard(str(request.session_hash), results)
            async with aclosing(heard) as answers:
                return await anext(answers, None)

        endpoint: Any = stream if inspect.isgeneratorfunction(function) else answer
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
        if is_public:
            self._described[function.__name__] = (inspect.getdoc(function) or "", signature)
        self._server.api(
            endpoint,
            name=function.__name__,
            concurrency_limit=None,
            api_visibility="public" if is_public else "private",
        )

    async def _limited(
        self,
        function: Callable[..., Any],
        values: tuple[Any, ...],
        places: asyncio.Semaphore | None,
    ) -> AsyncGenerator[Any, None]:
        """The values of an endpoint, once there is a place for it. Raises `gr.Error`."""
        if places is not None:
            await places.acquire()
        try:
            async for value in self._stepped(function, values):
                yield value
        except gr.Error:
            raise
        except SpecvizError as error:
            log.info("a call was refused: %s", brief(error))
            raise sentence(str(error)) from None
        except Exception:
            log.exception("an endpoint failed")
            raise sentence(FAILED) from None
        finally:
            if places is not None:
                places.release()

    async def _stepped(
        self, function: Callable[..., Any], values: tuple[Any, ...]
    ) -> AsyncGenerator[Any, None]:
        """The values of a function or of a generator, each made in a thread."""
        if not inspect.isgeneratorfunction(function):
            yield await self._in_thread(function, *values)
            return
        generator: Generator[Any, None, None] = function(*values)
        try:
            while True:
                value = await self._in_thread(next, generator, _END)
                if value is _END:
                    return
                yield value
        finally:
            await self._in_thread(generator.close)

    async def _in_thread(self, function: Callable[..., Any], *values: Any) -> Any:
        """What a function returns that may block. Whoever is cancelled waits for its end: no
        generator can be closed while it makes a value."""
        work = asyncio.ensure_future(to_thread.run_sync(function, *values, limiter=self._threads))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait({work})
            raise


def _note(request: gr.Request) -> None:
    assert request.request is not None
    note(request.request.scope)
    SEES_MODELS.set(sees_models(request.request.scope))
