"""The password: what is closed without it, and how often it may be tried."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Any

from starlette.requests import cookie_parser
from starlette.types import Scope

from .addresses import SIGN_IN
from .answers import LOCKED
from .bodies import Refused

MOST_TRIES = 5  # of one address, without a pause
PAUSE = 10.0  # seconds after which one more is allowed
SLOWER = 0.5  # seconds that a try waits for each wrong one before it
MOST_CLIENTS = 10_000  # that are remembered

WRONG = "The name or the password is wrong."
PAUSED = "The name or the password was wrong too often: wait a minute, then try again."
HINT = f"After {MOST_TRIES} wrong attempts, wait a minute before the next one."


def check_signed_in(scope: Scope, path: str) -> None:
    """Raise `Refused` if the page has a password, and this request came without it to anything but
    the sign-in page."""
    app: Any = scope["app"]
    if app.auth is None or SIGN_IN.fullmatch(path):
        return
    sent = (value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie")
    cookies = cookie_parser("; ".join(sent))
    names = (f"access-token-{app.cookie_id}", f"access-token-unsecure-{app.cookie_id}")
    if not any(cookies.get(name) in app.tokens for name in names):
        raise Refused(401, LOCKED)


class Attempts:
    """Counts wrong passwords by address: each makes the next try slower, and after `MOST_TRIES`
    there is one more in every `PAUSE`."""

    def __init__(self) -> None:
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tries, and when

    async def begin(self, client: str) -> None:
        """Count a try, and wait. Raises `Refused` if there were too many."""
        spent = self._spent_by(client)
        if spent > MOST_TRIES - 1:
            raise Refused(429, PAUSED, retry=int(PAUSE))
        # Counted before it is known to be wrong, so that many at once gain nothing.
        self._spent[client] = (spent + 1.0, time.monotonic())
        self._spent.move_to_end(client)
        if len(self._spent) > MOST_CLIENTS:
            self._spent.popitem(last=False)
        await asyncio.sleep(SLOWER * spent)

    def succeeded(self, client: str) -> None:
        """The try was right: forget the earlier ones."""
        self._spent.pop(client, None)

    def _spent_by(self, client: str) -> float:
        tries, when = self._spent.get(client, (0.0, 0.0))
        return max(0.0, tries - (time.monotonic() - when) / PAUSE)
