"""What a link to the page shows where it is shared: title, sentence and picture are the page's own,
not those of Gradio's template. Sites that show links run no scripts, so this is in the HTML."""

from __future__ import annotations

import html
import re

from starlette.datastructures import Headers
from starlette.types import Scope

from ...environment import ASSETS

TITLE = "specviz: speculative decoding, token by token"
DESCRIPTION = (
    "A language model races against itself, once alone and once helped by a small draft model. "
    "Every token is shown, and every number is measured."
)
PICTURE = ASSETS / "pictures" / "race-light.png"
"""A wheel does not have it; the card then has no picture."""

_TEMPLATE = re.compile(rb"<meta\s+(?:property=\"og:|name=\"twitter:)[^>]*>\s*")
_HOST = re.compile(r"[\w.-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:\d{1,5})?")


def address_of(scope: Scope) -> str | None:
    """Where the visitor found the page, without a slash at its end; None if that is not known."""
    headers = Headers(scope=scope)
    host = headers.get("x-forwarded-host") or headers.get("host", "")
    scheme = headers.get("x-forwarded-proto", scope.get("scheme", "http"))
    if scheme not in ("http", "https") or not _HOST.fullmatch(host):
        return None
    return f"{scheme}://{host}{scope.get('root_path', '').rstrip('/')}"


def with_card(page: bytes, address: str | None) -> bytes:
    """The HTML page with this card instead of Gradio's. address: what `address_of` gives."""
    facts = {"title": TITLE, "description": DESCRIPTION, "type": "website"}
    if address is not None:
        facts["url"] = address + "/"
        if PICTURE.is_file():
            facts["image"] = f"{address}/gradio_api/file={PICTURE}"
    card = "".join(
        f'<meta property="og:{name}" content="{html.escape(value)}">'
        for name, value in facts.items()
    )
    size = "summary_large_image" if "image" in facts else "summary"
    card += f'<meta name="twitter:card" content="{size}">'
    return _TEMPLATE.sub(b"", page).replace(b"<head>", b"<head>" + card.encode(), 1)
