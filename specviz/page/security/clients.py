"""Who sends a request: the address for which a visitor's share of the page is counted."""

from __future__ import annotations

import ipaddress

from gradio.context import LocalContext
from starlette.types import Scope


def client_of(scope: Scope) -> str:
    """The address of a request; of IPv6 its network, in which one visitor has many addresses.

    Behind a proxy it is the address that the proxy names, if uvicorn trusts the proxy.
    """
    host = str((scope.get("client") or ("",))[0])
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host


def client_here() -> str:
    """The address of the request that Gradio is answering in this thread; empty without one."""
    request = LocalContext.request.get(None)
    scope = getattr(getattr(request, "request", request), "scope", None)
    return client_of(scope) if scope else ""
