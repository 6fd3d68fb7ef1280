"""Limit connections: their number, and the time until a request's head has arrived. Neither is an
option of Gradio's `launch()`, so the class of uvicorn's protocol is replaced once the server
listens.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_PATIENCE = 10.0  # seconds from the first byte of a head, or from the connection, to its end
MAX_CONNECTIONS = 2048  # more get the status 503
CLOSING = 1  # seconds for connections to finish at the end


class PatientProtocol(H11Protocol):
    """Closes connections whose request head is late; keep-alive stays uvicorn's."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self._deadline is None:
                self._await_head()
        elif self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _await_head(self) -> None:
        # A transport that is closed already does nothing.
        self._deadline = self.loop.call_later(HEAD_PATIENCE, self.transport.close)


def limit_connections(config: Config) -> None:
    """Set the limits of a server that has begun; uvicorn reads them for each connection."""
    config.http_protocol_class = PatientProtocol
    config.limit_concurrency = MAX_CONNECTIONS
    config.timeout_graceful_shutdown = CLOSING
