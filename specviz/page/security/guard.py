"""The guard between the network and the page's application: three steps, one after the other.

The entrance decides which requests come in. The intake answers those with a body, the readings
those without one. The guard gives each request an id and its answer the headers, and
replaces the details of failures by sentences.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...base.logs import brief
from .answers import Answer
from .entrance import Entrance
from .intake import Intake
from .owner import MAY_FETCH, SEES_MODELS, may_fetch, sees_models
from .readings import Readings
from .requests import Refused, note, with_id

log = logging.getLogger(__name__)


class Guard:
    """Answers requests, or passes them on to `app`. policy: headers of every answer."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        entrance: Entrance,
        readings: Readings,
        intake: Intake,
        policy: Mapping[str, str],
    ) -> None:
        self._app = app
        self._entrance = entrance
        self._readings = readings
        self._intake = intake
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # the page uses none
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = with_id(scope)
        note(scope)
        MAY_FETCH.set(may_fetch(scope))
        SEES_MODELS.set(sees_models(scope))
        answer = Answer(scope, send, self._policy)
        try:
            await self._answer(scope, receive, answer)
        except Refused as refused:
            if refused.retry is not None:
                answer.added["retry-after"] = str(refused.retry)
            await answer.refuse(refused.status, str(refused))
        except Exception as error:
            if scope["method"] == "POST":
                log.info("a request was malformed: %s", brief(error))
                await answer.refuse(400)
            else:
                log.exception("a request failed")
                await answer.refuse(500)

    async def _answer(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        admitted = self._entrance.admit(scope, answer)
        if isinstance(admitted, Response):
            await answer.give(admitted)
        elif admitted is None:
            await self._readings.answer(scope, receive, answer)
        else:
            await self._intake.answer(admitted, scope, receive, answer)
