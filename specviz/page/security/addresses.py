"""The addresses of the page: which may be read, and which take what."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

from gradio.data_classes import _StaticFiles
from starlette.types import Scope

from ...prompts import OF_A_SWEEP
from ...runs.recording import FORMS, MOST_PACKED, MOST_UNPACKED, PROMPTS, TRACE
from .bodies import (
    EVENT,
    FORM,
    QUESTION,
    SMALL,
    check_event,
    check_named_values,
    check_object,
    check_question,
)

API = "/gradio_api/"
FILE = API + "file="
FILES = "/files/"
"""Below it visitors' files are read, by what they are to be read as."""

MOST_BYTES = {
    TRACE: MOST_PACKED,
    **dict.fromkeys(FORMS, MOST_UNPACKED),
    PROMPTS: OF_A_SWEEP.bytes,
}
"""What a file may be read as, and the bytes that it may then have."""

OPEN = re.compile(
    r"/|/(config|theme\.css|favicon\.ico|robots\.txt|manifest\.json|pwa_icon|logout)/?"
    r"|/(assets|static)/[\w./-]+"
    r"|/gradio_api/(info|openapi\.json|app_id|user|login_check|token|theme\.css|startup-events"
    r"|queue/status|queue/data|heartbeat/[\w.-]{1,64})/?"
    r"|/gradio_api/call/(v2/)?(generate|race|doctor|sweep)/\w{1,64}"
)
"""The addresses that may be read, besides files. Gradio itself would start any event by its name,
also the page's own."""

SIGN_IN = re.compile(
    r"/|/(login|theme\.css|favicon\.ico|robots\.txt|gradio_api/startup-events)/?"
    r"|/(assets|static)/.+"
)
"""What the sign-in page and Gradio's own start need: nothing else answers before a visitor has
signed in."""


class Post(NamedTuple):
    """An address for POST. most: bytes of a body. check: raises `Refused` for a wrong body. begins:
    whether an event begins. reads: what a file is to be read as, if the body is one."""

    path: re.Pattern[str]
    most: int
    check: Callable[[bytes], None] | None
    begins: bool = False
    reads: str | None = None


LOGIN = Post(re.compile(r"/login/?"), FORM, None)
TOOLS = re.compile(r"/gradio_api/mcp(/.*)?")
TOOL_POST = Post(TOOLS, SMALL, None)
_PROGRAMS = r"(generate|race|doctor|sweep)/?"
POSTS = (
    LOGIN,
    Post(re.compile(API + "component_server/?"), QUESTION, check_question),
    Post(re.compile(API + "call/v2/" + _PROGRAMS), EVENT, check_named_values, begins=True),
    Post(re.compile(API + "queue/join|" + API + "call/" + _PROGRAMS), EVENT, check_event, True),
    Post(re.compile(API + "(cancel|reset/?)"), SMALL, check_object),
    # With a byte more than it may have, a file's reader says what is wrong with it.
    *(
        Post(re.compile(FILES + form), most + 1, None, reads=form)
        for form, most in MOST_BYTES.items()
    ),
)
_STREAM = re.compile(API + r"(queue/data/?|call/(?:v2/)?(?:generate|race|doctor|sweep)/(\w{1,64}))")


def path_of(scope: Scope) -> str:
    """The path of a request, without the prefix that a proxy added."""
    path: str = scope["path"]
    front: str = scope.get("root_path", "").rstrip("/")
    return path[len(front) :] if front and path.startswith(front + "/") else path


def stream_of(path: str, query: bytes) -> str | None:
    """The session or the event whose results are read here; None at any other address."""
    found = _STREAM.fullmatch(path)
    if found is None:
        return None
    asked = parse_qs(query.decode("latin-1"), max_num_fields=8).get("session_hash", [""])
    return found[2] or asked[0]


def is_readable(path: str) -> bool:
    """Whether this address may be read."""
    if path.startswith(FILE):
        return is_public(path[len(FILE) :])
    return bool(OPEN.fullmatch(path)) and ".." not in path


def is_public(name: str) -> bool:
    """Whether this is the name of a public file, after links and dots in it are resolved.

    Gradio itself would also fetch addresses, and send every file in its cache.
    """
    try:
        path = Path(name)
        real = path.resolve()
        hidden = any(part.startswith(".") for part in path.parts[-1:])
        if not path.is_absolute() or hidden or not real.is_file():
            return False
    except (OSError, ValueError):
        return False
    return any(real == one or one in real.parents for one in _StaticFiles.all_paths)
