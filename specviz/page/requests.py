"""Who sends a request, and which one is being answered."""

from __future__ import annotations

import ipaddress
import re
from uuid import uuid4

from gradio.context import LocalContext
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Scope

from ..logs import REQUEST

ID = "x-request-id"
_GIVEN = re.compile(r"[\w.-]{1,64}", re.ASCII)  # by a proxy


def with_id(scope: Scope) -> Scope:
    """The request with an id, which is a proxy's own if it gave one."""
    scope = dict(scope)
    headers = MutableHeaders(scope=scope)
    given = headers.get(ID, "")
    headers[ID] = given if _GIVEN.fullmatch(given) else uuid4().hex[:16]
    return scope


def _scope_here() -> Scope:
    """The request that Gradio is answering in this thread; empty without one."""
    request = LocalContext.request.get(None)
    return getattr(getattr(request, "request", request), "scope", None) or {}


def note_request() -> None:
    """Write the id of the visitor's request to the log from now on. For handlers of events, which
    Gradio runs outside of their requests."""
    if scope := _scope_here():
        REQUEST.set(Headers(scope=scope).get(ID, ""))


def client_of(scope: Scope) -> str:
    """The address of a request; of IPv6 its network, in which one visitor has many addresses.

    Behind a proxy it is the address that the proxy names, if uvicorn trusts the proxy.
    """
    host = str((scope.get("client") or ("",))[0])
    try:
        return str(ipaddress.IPv6Network((host, 64), strict=False))
    except ValueError:
        return host


def client_here() -> str:
    """The address of the request that Gradio is answering in this thread; empty without one."""
    return client_of(_scope_here())
