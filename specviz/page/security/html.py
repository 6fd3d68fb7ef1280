"""What is changed in Gradio's HTML: what a link to it shows, and what comes before its scripts.

Where a link is shared, title, sentence and picture are the page's own, not those of Gradio's
template. Sites that show links run no scripts, so this is in the HTML.

Before all scripts of Gradio come the names of the page's own modules, and the end of a loop, so
that an idle page does nothing: the sign of loading that Gradio shows at first has a timer, which
counts on in each frame when that sign has long gone. No such timer is ever shown on this page.
"""

from __future__ import annotations

import html
import re

from starlette.datastructures import Headers
from starlette.types import Scope

from ...environment import ASSETS
from ...runs.html import PAGE, served_map

TITLE = "specviz: speculative decoding, token by token"
DESCRIPTION = (
    "A language model races against itself, once alone and once helped by a small draft model. "
    "Every token is shown, and every number is measured."
)
PICTURE = ASSETS / "pictures" / "race-light.png"
"""A wheel does not have it; the card then has no picture."""

_TEMPLATE = re.compile(rb"<meta\s+(?:property=\"og:|name=\"twitter:)[^>]*>\s*")
_HOST = re.compile(r"[\w.-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]{2,45}\](:\d{1,5})?")
NO_TIMER = b"""<script>
{
  const next = window.requestAnimationFrame.bind(window);
  const isTimer = (text) => text.length < 120 && /performance\\.now\\(\\)-.*1e3/.test(text);
  window.requestAnimationFrame = (then) => (isTimer(String(then)) ? 0 : next(then));
}
</script>"""
_BASE = re.compile(rb"<head>(?:\s*<(?:meta|base)\b[^>]*>)*")


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


def with_scripts(page: bytes) -> bytes:
    """The HTML page with both, behind the address that all others on it start from. Gradio keeps
    the timer that it finds, and a browser may ignore an import map behind the first module."""
    names = served_map(f"gradio_api/file={PAGE}/").encode()
    added = b'<script type="importmap">%s</script>%s' % (names, NO_TIMER)
    return _BASE.sub(lambda head: head.group() + added, page, count=1)
