"""What the operator of the page can switch on, by environment variables."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from typing import Any

from starlette.middleware import Middleware

from ...environment import AUTH, MCP
from .guard import GuardedApp
from .sign_in import HINT
from .sites import Sites

log = logging.getLogger(__name__)

NO_TOOLS = (
    "SPECVIZ_MCP is set, but MCP is not installed: the page starts without it. "
    "Install it with 'pip install -r requirements-mcp.txt'."
)
NOT_BOTH = "SPECVIZ_MCP and SPECVIZ_AUTH are both set: MCP knows no password, so it stays off."


def guarded_options(front: Sequence[Middleware] = ()) -> dict[str, Any]:
    """The options of `launch()` for a page on a public network. front: what requests reach before
    the guard. Raises `SettingsError`."""
    password = AUTH.read()
    tools = _tools(password is not None)
    return {
        "_app": GuardedApp(sites=Sites.from_environment(), tools=tools, front=front),
        "auth": password,
        "auth_message": HINT if password else None,
        "mcp_server": tools,
        "show_error": False,
        "max_file_size": "1b",
        "enable_monitoring": False,
        "strict_cors": True,
    }


def _tools(password: bool) -> bool:
    if not MCP.read():
        return False
    if password:
        log.warning(NOT_BOTH)
        return False
    if importlib.util.find_spec("mcp") is None:
        log.warning(NO_TOOLS)
        return False
    return True
