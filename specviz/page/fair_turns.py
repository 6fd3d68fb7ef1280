"""Turns at something that does one thing at a time, shared by the addresses of those who wait."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager

from ..base.errors import SpecvizError


class FairTurns:
    """Gives turns one at a time. The addresses of those who wait come by turns, and those of one
    address in their order, so that however many requests one sends, another waits for one of them.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_taken = False
        self._latest: str | None = None  # the address that had the latest turn
        # Those who wait, by address, in the order in which the addresses come.
        self._waiting: OrderedDict[str, deque[object]] = OrderedDict()
        self._unfinished: Counter[str] = Counter()  # waiting ones, and the one with the turn

    @contextmanager
    def turn(
        self, client: str, *, limit: int, limit_of_client: int, crowded: str, share_used: str
    ) -> Iterator[None]:
        """Wait for a turn, which lasts as long as the block.

        client: the address; one that is empty is unknown, and has no share. limit, limit_of_client:
        how many may be unfinished, of all and of one address. Raises `SpecvizError` with `crowded`
        or `share_used` if there are more.
        """
        with self._changed:
            if self._unfinished.total() >= limit:
                raise SpecvizError(crowded)
            if client and self._unfinished[client] >= limit_of_client:
                raise SpecvizError(share_used)
            self._unfinished[client] += 1
            ticket = object()
            self._waiting.setdefault(client, deque()).append(ticket)
            self._changed.wait_for(lambda: not self._is_taken and self._next() is ticket)
            self._is_taken = True
            self._take(client)
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._unfinished -= Counter([client])
                self._changed.notify_all()

    def _next(self) -> object:
        """The one whose turn is next: never twice the same address while another waits."""
        others = (client for client in self._waiting if client != self._latest)
        client = next(others, self._latest)
        return self._waiting[client or ""][0]

    def _take(self, client: str) -> None:
        """Remove the first one of an address, which then comes last."""
        self._latest = client
        waiting = self._waiting.pop(client)
        waiting.popleft()
        if waiting:
            self._waiting[client] = waiting
