"""The password of a page: signed-in visitors, and the limit of tries."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from .addresses import SIGN_IN
from .requests import Refused

MAX_TRIES = 5  # tries of one address without a pause
PAUSE = 10.0  # seconds after which one more try is allowed
SLOWER = 0.5  # seconds that a try waits for each wrong one before it
MAX_CLIENTS = 10_000  # remembered addresses

LOCKED = "This page has a password: sign in first."
WRONG = "The name or the password is wrong."
PAUSED = "The name or the password was wrong too often: wait a minute, then try again."
HINT = f"After {MAX_TRIES} wrong attempts, wait a minute before the next one."


class Password:
    """A name and a password. A visitor who enters both gets a cookie, which is a secret of this
    process.

    is_framed: whether other sites may show the page in a frame: only then do they send the cookie.
    """

    def __init__(self, name: str, password: str, *, is_framed: bool) -> None:
        self._wanted = (name, password)
        self._is_framed = is_framed
        # Pages on other ports of a host share its cookies.
        self._cookie = f"specviz-{secrets.token_hex(4)}"
        self._ticket = secrets.token_urlsafe(32)
        self._attempts = Attempts()

    def is_entered(self, scope: Scope) -> bool:
        """Whether a request's sender has entered the password."""
        ticket = Request(scope).cookies.get(self._cookie, "")
        return secrets.compare_digest(ticket.encode(), self._ticket.encode())

    def check(self, scope: Scope, path: str) -> None:
        """Raise `Refused` for a request without the password, unless it is for the sign-in page."""
        if not (SIGN_IN.fullmatch(path) or self.is_entered(scope)):
            raise Refused(401, LOCKED)

    def is_right(self, name: str, password: str) -> bool:
        """Whether the name and the password are right."""
        entered_pair = (name, password)
        same = [
            secrets.compare_digest(entered.encode(), wanted.encode())
            for entered, wanted in zip(entered_pair, self._wanted, strict=True)
        ]
        return all(same)

    def sign_in(self, response: Response, *, https: bool) -> None:
        """Give the cookie with this answer. It does not travel over plain HTTP if the page came
        over HTTPS."""
        sent_in_frames = self._is_framed and https
        response.set_cookie(
            self._cookie,
            self._ticket,
            httponly=True,
            secure=https,
            samesite="none" if sent_in_frames else "lax",
        )

    def sign_out(self, response: Response) -> None:
        """Take the cookie back with this answer."""
        response.delete_cookie(self._cookie)

    @asynccontextmanager
    async def attempt(self, client: str) -> AsyncIterator[Attempt]:
        """Count an attempt, and wait. Raises `Refused` after too many from this address."""
        attempt = Attempt()
        await self._attempts.begin(client)
        yield attempt
        if attempt.is_right:
            self._attempts.succeeded(client)


@dataclass
class Attempt:
    """is_right: whether name and password were."""

    is_right: bool = False


class Attempts:
    """Counts wrong passwords by address: each delays the next try, and after `MAX_TRIES` one more
    try is allowed every `PAUSE` seconds."""

    def __init__(self) -> None:
        self._forgiven: dict[str, float] = {}  # when all tries of an address are

    async def begin(self, client: str) -> None:
        """Count a try, and wait. Raises `Refused` after too many."""
        now = time.monotonic()
        forgiven = max(now, self._forgiven.get(client, now))
        spent = (forgiven - now) / PAUSE
        if spent > MAX_TRIES - 1:
            raise Refused(429, PAUSED, retry=int(PAUSE))
        # Counted before it is checked, so that parallel tries gain nothing.
        self._forgiven.pop(client, None)  # the address of the latest try comes last
        self._forgiven[client] = forgiven + PAUSE
        if len(self._forgiven) > MAX_CLIENTS:
            del self._forgiven[next(iter(self._forgiven))]
        await asyncio.sleep(SLOWER * spent)

    def succeeded(self, client: str) -> None:
        """Forget the earlier tries of an address after a right one."""
        self._forgiven.pop(client, None)
