"""The addresses of the page: readable ones, those for POST with their limits, the host names of the
page, and the web sites that may use it in a visitor's browser.

A browser names the site that makes a request in the header `Origin`, and the name by which it
reached the page in `Host`. Neither can be changed by a site. Programs send no `Origin`.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from ...base.variables import ORIGINS
from ...pairs.prompts import OF_A_SWEEP
from ...runs.recording import FORMS, MAX_PACKED, MAX_UNPACKED, PROMPT_FILES, TRACE
from .requests import EVENT, EVENTS, FORM, NAMED, QUESTION, QUESTIONS, SMALL, VALUES, Kind, Refused

API = "/gradio_api/"
FILES = "/files/"
"""The prefix for visitors' files, followed by the kind to read them as."""

RUN_PATH = "/run"
"""The address that begins a run, and answers with the stream of its events."""

QUESTION_PATH = "/ask/"
"""The prefix for the page's questions, followed by a question's name."""

MAX_BYTES = {
    TRACE: MAX_PACKED,
    **dict.fromkeys(FORMS, MAX_UNPACKED),
    **dict.fromkeys(PROMPT_FILES, OF_A_SWEEP.bytes),
}
"""Limits of files in bytes, by the kind to read them as."""

PUBLIC = re.compile(
    r"/|/(config|style\.css|favicon\.ico|robots\.txt|logout|api|audit)/?"
    r"|/(page|recordings)/[\w./-]+"
    r"|/gradio_api/(info|openapi\.json|app_id|user|login_check|token|startup-events"
    r"|queue/status|(?P<session>queue/data)|heartbeat/[\w.-]{1,64})/?"
    r"|/gradio_api/call/(v2/)?(generate|race|doctor|sweep)/(?P<event>\w{1,64})"
)
"""The addresses that may be read. Gradio has more."""

SIGN_IN = re.compile(
    r"/|/(login|style\.css|favicon\.ico|robots\.txt|gradio_api/startup-events)/?"
    r"|/page/(v-\w+/)?fonts/.+"
)
"""The addresses of the sign-in page and of Gradio's own start: nothing else answers before a
visitor has signed in."""


class Post(NamedTuple):
    """An address for POST. max_bytes: the limit of a body. kind: the kind of JSON that a body must
    be. begins: whether an event begins. reads: the kind to read a file as, if the body is a file.
    """

    path: re.Pattern[str]
    max_bytes: int
    kind: Kind | None = None
    begins: bool = False
    reads: str | None = None


LOGIN = Post(re.compile(r"/login/?"), FORM)
TOOLS = re.compile(r"/gradio_api/mcp(/.*)?")
TOOL_POST = Post(TOOLS, SMALL)
_PROGRAMS = r"(generate|race|doctor|sweep)/?"
POSTS = (
    LOGIN,
    Post(re.compile(r"/audit"), FORM),
    Post(re.compile(RUN_PATH), EVENT, VALUES),
    Post(re.compile(QUESTION_PATH + r"\w{1,64}"), QUESTION, QUESTIONS),
    Post(re.compile(API + "call/v2/" + _PROGRAMS), EVENT, VALUES, begins=True),
    Post(re.compile(API + "call/" + _PROGRAMS), EVENT, EVENTS, begins=True),
    Post(re.compile(API + "queue/join"), EVENT, EVENTS, begins=True),
    Post(re.compile(API + "(cancel|reset/?)"), SMALL, NAMED),
    # One byte over its limit, so that the file's reader can report the size.
    *(Post(re.compile(FILES + kind), size + 1, reads=kind) for kind, size in MAX_BYTES.items()),
)


def path_of(scope: Scope) -> str:
    """The path of a request, without the prefix that a proxy added."""
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "").rstrip("/")
    if prefix and path.startswith(prefix + "/"):
        return path[len(prefix) :]
    return path


def stream_of(path: str, query: bytes) -> str | None:
    """The session or the event whose results this address streams; None for any other address."""
    match = PUBLIC.fullmatch(path)
    if match is None:
        return None
    if match["session"]:
        fields = parse_qs(query.decode("latin-1"), max_num_fields=8)
        return fields.get("session_hash", [""])[0]
    return match["event"]


def is_readable(path: str) -> bool:
    """Whether this address may be read."""
    return bool(PUBLIC.fullmatch(path)) and ".." not in path


log = logging.getLogger(__name__)

HUB = "https://huggingface.co"
SPACES = "https://*.hf.space"
MAX_LOGGED = 20  # refused names; a stranger must not fill the log

FOREIGN = (
    "This site may not use the page: the page's operator can allow it with the variable "
    f"{ORIGINS.name}."
)
MISNAMED = (
    "The page is not served by this name: its operator can allow the name with the variable "
    f"{ORIGINS.name}."
)
UNKNOWN = (
    "a request for the host %r was refused: if the page is served by this name, set "
    f"{ORIGINS.name}=https://%s"
)

HOST = re.compile(r"([\w.-]{1,253}|\[[\da-fA-F:.]{2,45}\])(:\d{1,5})?", re.ASCII)
# An IP address, or a name that nobody can register: no stranger's site has these.
_PRIVATE = re.compile(r"\[.+\]|[\d.]+|[\w-]+|[\w.-]+\.(localhost|local|internal|home\.arpa)")


@dataclass
class Sites:
    """The sites that are allowed.

    origins: of sites that may use the page and show it in a frame. anywhere: whether the page may
    be reached by any name, because a proxy in front of it decides.
    """

    origins: frozenset[str] = frozenset()
    anywhere: bool = False
    _logged: set[str] = field(default_factory=set)

    @classmethod
    def from_environment(cls) -> Sites:
        """Return the sites that the operator allows. On a Space the hub is one of them, since it
        frames the page. Raises `SettingsError`."""
        on_space = bool(os.environ.get("SPACE_ID"))
        root = urlsplit(os.environ.get("GRADIO_ROOT_PATH", "").lower())
        origins = set(ORIGINS.read())
        if on_space:
            origins.add(HUB)
        if root.scheme in ("http", "https"):
            origins.add(f"{root.scheme}://{root.netloc}")
        return cls(frozenset(origins), anywhere=on_space)

    @property
    def frames(self) -> list[str]:
        """The sites that may show the page in a frame, besides the page itself."""
        sites = set(self.origins)
        if self.anywhere:
            sites.add(SPACES)
        return sorted(sites)

    def admit(self, headers: Headers, shared: str | None) -> dict[str, str]:
        """The headers that let a request's site read the answer. shared: the address of Gradio's
        tunnel, if there is one. Raises `Refused` if the site may not use the page, or if the page
        has no such host name.
        """
        host = headers.get("host")
        origin = headers.get("origin")
        if host is not None and not self.anywhere and not self._is_name(host, shared):
            self._log_once(host)
            raise Refused(403, MISNAMED)
        if origin is None or _is_own(origin, headers):
            return {}
        if origin.lower() not in self.origins:
            raise Refused(403, FOREIGN)
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-credentials": "true",
        }

    def _log_once(self, host: str) -> None:
        if host not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(host)
            log.warning(UNKNOWN, host[:100], host[:100])

    def _is_name(self, host: str, shared: str | None) -> bool:
        # A URL parser would cut off anything beyond a host and a port.
        match = HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower()
        origins = (*self.origins, shared or "")
        named = {urlsplit(origin).hostname for origin in origins}
        return bool(_PRIVATE.fullmatch(name)) or name in named


PREFLIGHT = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "content-type",
    "access-control-max-age": "600",
}
"""Further headers of the answer to a preflight request of a browser."""


def _is_own(origin: str, headers: Headers) -> bool:
    """Whether this is the page's own origin. A site cannot set the second header in a visitor's
    browser without a preflight request."""
    scheme, _, host = origin.lower().partition("://")
    if scheme not in ("http", "https") or not host:
        return False
    own_host = headers.get("host", "")
    forwarded_host = headers.get("x-forwarded-host", "").split(",")[0].strip()
    return host in (own_host.lower(), forwarded_host.lower())
