"""Decide who may start a fetch, and who sees the models on the page's machine: the user who opened
the page there, and never a stranger.

The user of a page on the own machine opens it from an address of that machine. Behind a proxy or a
tunnel every stranger has such an address too, so a request must also name the page by a loopback
name, and carry no header that a proxy adds. If the operator has set the page up for others, nobody
counts as its own user. The operator decides with SPECVIZ_FETCH and SPECVIZ_LOCAL_MODELS.
"""

from __future__ import annotations

import ipaddress
import os
from contextvars import ContextVar

from starlette.datastructures import Headers
from starlette.types import Scope

from ...base.environment import Variable
from ...base.variables import AUTH, FETCH, LOCAL_MODELS, ORIGINS
from .addresses import HOST

BY_PROXY = (
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-server",
)
"""Headers that proxies add and browsers do not send."""

MAY_FETCH: ContextVar[bool] = ContextVar("may_fetch", default=False)
"""Whether the request being answered may start the fetch of a pair."""


SEES_MODELS: ContextVar[bool] = ContextVar("sees_models", default=False)
"""Whether the request being answered may name models that other programs keep here."""


def sees_models(scope: Scope) -> bool:
    """Whether a request's sender may see the models on this machine."""
    return _is_allowed(LOCAL_MODELS, otherwise=is_own_user(scope))


def may_show_models() -> bool:
    """Whether anybody may see these models."""
    return _is_allowed(LOCAL_MODELS, otherwise=not _is_public())


def may_fetch(scope: Scope) -> bool:
    """Whether a request's sender may start the fetch of a pair."""
    return _is_allowed(FETCH, otherwise=is_own_user(scope))


def _is_allowed(variable: Variable[bool | None], *, otherwise: bool) -> bool:
    """The operator's decision in a variable; `otherwise` if the operator has made none."""
    allowed = variable.read()
    if allowed is None:
        return otherwise
    return allowed


def is_own_user(scope: Scope) -> bool:
    """Whether a request comes from the page's own user, on this machine."""
    if _is_public():
        return False
    client = scope.get("client") or ("",)
    if not _is_loopback(str(client[0])):
        return False
    headers = Headers(scope=scope)
    host = HOST.fullmatch(headers.get("host", ""))
    if host is None:
        return False
    host_name = host[1].strip("[]").lower()
    is_through_proxy = any(name in headers for name in BY_PROXY)
    return _is_loopback(host_name) and not is_through_proxy


def _is_public() -> bool:
    """Whether the operator has set up the page for others."""
    if ORIGINS.read() or AUTH.read() is not None:
        return True
    settings = ("SPACE_ID", "GRADIO_ROOT_PATH", "GRADIO_SHARE")
    return any(os.environ.get(name) for name in settings)


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
