"""Which web sites may use the page in a visitor's browser, and by which names it is reached.

A browser names the site that makes a request in the header `Origin`, and the name by which it
reached the page in `Host`. Neither can be changed by a site. Programs send no `Origin`.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from ...variables import ORIGINS
from .bodies import Refused

log = logging.getLogger(__name__)

HUB = "https://huggingface.co"
SPACES = "https://*.hf.space"
MOST_LOGGED = 20  # refused names; a stranger must not fill the log

FOREIGN = (
    "This site may not use the page: the page's operator can allow it with the variable "
    f"{ORIGINS.name}."
)
MISNAMED = (
    "The page is not served by this name: its operator can allow the name with the variable "
    f"{ORIGINS.name}."
)

_HOST = re.compile(r"([\w.-]{1,253}|\[[\da-fA-F:.]{2,45}\])(:\d{1,5})?", re.ASCII)
# Nobody can register such a name, so no site of a stranger can be reached by it.
_PRIVATE = re.compile(r"[\w-]+|[\w.-]+\.(localhost|local|internal|home\.arpa)")


@dataclass
class Sites:
    """What is allowed. origins: of sites that may use the page and show it in a frame. anywhere:
    whether the page may be reached by any name, because a proxy in front of it decides."""

    origins: frozenset[str] = frozenset()
    anywhere: bool = False
    _logged: set[str] = field(default_factory=set)

    @classmethod
    def from_environment(cls) -> Sites:
        """What the operator allows. On a Space that is also the hub, which frames the page. Raises
        `SettingsError`."""
        on_space = bool(os.environ.get("SPACE_ID"))
        own = os.environ.get("GRADIO_ROOT_PATH", "")
        origins = {*ORIGINS.read(), *([HUB] if on_space else [])}
        if own.startswith(("http://", "https://")):
            origins.add(_origin_of(own))
        return cls(frozenset(origins), anywhere=on_space)

    @property
    def frames(self) -> list[str]:
        """The sites that may show the page in a frame, beside the page itself."""
        return sorted({*self.origins, *([SPACES] if self.anywhere else [])})

    def admit(self, headers: Headers, shared: str | None) -> dict[str, str]:
        """The headers of the answer that let the site of a request read it.

        shared: the address of Gradio's tunnel, if there is one. Raises `Refused` if the site may
        not use the page, or if the page has no such name.
        """
        self._check_name(headers.get("host"), shared)
        origin = headers.get("origin")
        if origin is None or _own(origin, headers):
            return {}
        if origin.lower() not in self.origins:
            raise Refused(403, FOREIGN)
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-credentials": "true",
        }

    def _check_name(self, host: str | None, shared: str | None) -> None:
        if host is None or self.anywhere:
            return
        # What is more than a host and a port, a URL's parser would cut off.
        name = _name_of("//" + host) if _HOST.fullmatch(host) else None
        if name is not None and (_is_private(name) or name in self._names(shared)):
            return
        if host not in self._logged and len(self._logged) < MOST_LOGGED:
            self._logged.add(host)
            log.warning(
                "a request for the host %r was refused: if the page is served by this name, set "
                "%s=https://%s",
                host[:100],
                ORIGINS.name,
                host[:100],
            )
        raise Refused(403, MISNAMED)

    def _names(self, shared: str | None) -> set[str | None]:
        return {_name_of(origin) for origin in (*self.origins, *([shared] if shared else []))}


PREFLIGHT = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "content-type",
    "access-control-max-age": "600",
}
"""The further headers of an answer to a browser that asks whether it may send a request."""


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether a browser asks before it sends the request of another site."""
    return method == "OPTIONS" and "access-control-request-method" in headers


def _own(origin: str, headers: Headers) -> bool:
    """Whether this is the origin of the page itself. A site cannot set the second header in a
    visitor's browser without asking first."""
    hosts = [headers.get("host"), headers.get("x-forwarded-host", "").split(",")[0].strip()]
    scheme, _, host = origin.lower().partition("://")
    return scheme in ("http", "https") and host in [one.lower() for one in hosts if one]


def _is_private(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return bool(_PRIVATE.fullmatch(name))
    return True


def _name_of(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def _origin_of(address: str) -> str:
    parts = urlsplit(address.lower())
    return f"{parts.scheme}://{parts.netloc}"
