"""How long the head of a request may take to arrive. uvicorn limits its size, and has no limit of
time for it."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE = 10.0  # seconds from the first byte of a head, or from the connection, to its end
MOST_CONNECTIONS = 2048  # more get the status 503


class PatientProtocol(H11Protocol):
    """uvicorn's, which ends a connection whose next head is not here in time. An idle connection
    between two requests is uvicorn's own affair."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._forget_head()
        elif self._deadline is None:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(PATIENCE, self.transport.close)

    def _forget_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def limit_heads(server: Any) -> None:
    """Limit the heads of requests to this running server of uvicorn. It reads its configuration for
    each connection."""
    server.config.http_protocol_class = PatientProtocol
    server.config.limit_concurrency = MOST_CONNECTIONS
