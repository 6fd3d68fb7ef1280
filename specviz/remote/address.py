"""Where a server is, and the key that goes there and nowhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import httpx

from ..base.errors import ServerError
from ..base.variables import REMOTE, REMOTE_KEY

HIDDEN = "the target's server"
ADDRESS = re.compile(r"(?:^|\|)\s*(https?://[^\s#]+)#")
"""In "http://HOST:PORT/v1#MODEL+DRAFT", or in two of them with a "|" in between."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The interface of a server, such as http://127.0.0.1:8000/v1.

    key: sent as a bearer token to this address only; it stands in no repr. hidden: it is the
    operator's, so that no sentence names its host and port, which visitors may read.
    """

    url: httpx.URL
    key: str | None = field(default=None, repr=False)
    hidden: bool = False

    @property
    def shown(self) -> str:
        """Host and port, for sentences."""
        return HIDDEN if self.hidden else self.url.netloc.decode()


def server_address(url: str) -> ServerAddress:
    """An address that the person who runs this program has named, with the key for it.

    If SPECVIZ_REMOTE names servers, SPECVIZ_REMOTE_KEY is theirs alone: it goes to the same scheme,
    host and port. If it names none, the key is for the address that is named here. So nobody else
    may choose what is passed. Raises `ServerError` for what is no address.
    """
    parsed, operators = checked_url(url), REMOTE.read()
    named = [checked_url(url) for url in ADDRESS.findall(operators or "")]
    hidden = any(_origin(one) == _origin(parsed) for one in named)
    return ServerAddress(parsed, REMOTE_KEY.read() if hidden or not named else None, hidden)


def checked_url(url: str) -> httpx.URL:
    """A URL of a server, without what follows its path. Raises `ServerError`."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ServerError("this is no address of a server: write http://HOST:PORT/v1.")
    if parsed.userinfo:
        raise ServerError("an address must not hold a password: set SPECVIZ_REMOTE_KEY instead.")
    return parsed.copy_with(query=None, fragment=None)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
