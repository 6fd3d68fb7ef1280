"""What the operator of the page can switch on, by environment variables."""

from __future__ import annotations

import importlib.util
import logging
import os
from typing import Any

from starlette.middleware import Middleware

from ...errors import SettingsError
from .guard import Guard

log = logging.getLogger(__name__)

AUTH = "SPECVIZ_AUTH"
TOOLS = "SPECVIZ_MCP"
NO_TOOLS = (
    "SPECVIZ_MCP is set, but MCP is not installed: the page starts without it. "
    "Install it with 'pip install -r requirements-mcp.txt'."
)
NOT_BOTH = "SPECVIZ_MCP and SPECVIZ_AUTH are both set: MCP knows no password, so it stays off."
BAD_AUTH = "SPECVIZ_AUTH must be NAME:PASSWORD, neither of them empty."


def guarded_options() -> dict[str, Any]:
    """The options of `launch()` for a page on a public network. Raises `SettingsError`."""
    password = _password()
    tools = _tools(password is not None)
    return {
        "app_kwargs": {
            "middleware": [Middleware(Guard, tools=tools)],
            # FastAPI's own pages load scripts from another host.
            "docs_url": None,
            "redoc_url": None,
            "openapi_url": None,
        },
        "auth": password,
        "mcp_server": tools,
        "show_error": False,
        "max_file_size": "1b",
        "enable_monitoring": False,
        "strict_cors": True,
    }


def _password() -> tuple[str, str] | None:
    value = os.environ.get(AUTH, "")
    if not value:
        return None
    name, _, password = value.partition(":")
    if not name or not password:
        raise SettingsError(BAD_AUTH)
    return name, password


def _tools(password: bool) -> bool:
    if os.environ.get(TOOLS, "") in ("", "0"):
        return False
    if password:
        log.warning(NOT_BOTH)
        return False
    if importlib.util.find_spec("mcp") is None:
        log.warning(NO_TOOLS)
        return False
    return True
