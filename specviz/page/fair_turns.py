"""Fair turns at an exclusive resource: the addresses of waiting clients alternate."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager

from ..base.errors import SpecvizError


class FairTurns:
    """Gives turns one at a time. Addresses alternate, and requests of one address keep their order:
    however many requests a client sends, another client waits for only one of them.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_taken = False
        self._latest: str | None = None  # the address that had the latest turn
        # Waiting turns by address, in the order in which the addresses come next.
        self._waiting: OrderedDict[str, deque[object]] = OrderedDict()
        self._unfinished: Counter[str] = Counter()  # waiting ones, and the one with the turn

    @contextmanager
    def turn(
        self, client: str, *, limit: int, limit_of_client: int, crowded: str, share_used: str
    ) -> Iterator[None]:
        """Wait for a turn, which lasts as long as the block. client: the address; an empty one is
        unknown, and has no limit of its own. limit, limit_of_client: the unfinished turns allowed,
        in all and for one address. Raises `SpecvizError` with `crowded` or `share_used` if there
        are more.
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
        """The next turn: never the same address twice while another waits."""
        others = (client for client in self._waiting if client != self._latest)
        client = next(others, self._latest)
        return self._waiting[client or ""][0]

    def _take(self, client: str) -> None:
        """Remove the first turn of an address, which then comes last."""
        self._latest = client
        waiting = self._waiting.pop(client)
        waiting.popleft()
        if waiting:
            self._waiting[client] = waiting
