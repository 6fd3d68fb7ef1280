"""Addresses of servers, each with the key that is sent there and nowhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import httpx

from ..base.errors import ServerError
from ..base.variables import REMOTE, REMOTE_KEY

HIDDEN = "the target's server"
ADDRESS = re.compile(r"(?:^|\|)\s*(https?://[^\s#]+)#")
"""The addresses in "http://HOST:PORT/v1#MODEL+DRAFT", or in two of them with a "|" in between."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The interface of a server, such as http://127.0.0.1:8000/v1.

    key: a bearer token, sent to this address only; no repr shows it. hidden: whether it is the
    operator's server, whose host and port visitors must not read in any sentence.
    """

    url: httpx.URL
    key: str | None = field(default=None, repr=False)
    hidden: bool = False

    @property
    def shown(self) -> str:
        """Host and port, for sentences."""
        if self.hidden:
            return HIDDEN
        return self.url.netloc.decode()


def server_address(url: str) -> ServerAddress:
    """The address that the person who runs this program has named, with its key.

    If SPECVIZ_REMOTE names servers, SPECVIZ_REMOTE_KEY is theirs alone: it goes to the same
    scheme, host and port. If it names none, the key is for `url`. So `url` must never come from
    anybody else. Raises `ServerError` for an invalid address.
    """
    parsed = checked_url(url)
    operator_addresses = ADDRESS.findall(REMOTE.read() or "")
    operators = [checked_url(address) for address in operator_addresses]
    is_operators = any(_origin(server) == _origin(parsed) for server in operators)
    key = None
    if is_operators or not operators:
        key = REMOTE_KEY.read()
    return ServerAddress(parsed, key, hidden=is_operators)


def checked_url(url: str) -> httpx.URL:
    """Return the URL of a server, without query and fragment. Raises `ServerError`."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ServerError("this is not the address of a server: use http://HOST:PORT/v1.")
    if parsed.userinfo:
        raise ServerError("an address must not contain a password: set SPECVIZ_REMOTE_KEY instead.")
    return parsed.copy_with(query=None, fragment=None)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
