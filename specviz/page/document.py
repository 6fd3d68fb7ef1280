"""The HTML of the page, of its sign-in and of the list of its endpoints."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from inspect import Parameter, Signature
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

from ..audit.html import style
from ..core.registry import drafter_kind
from ..runs.html import PAGE, first_modules
from .public import PAGE_AT, PICTURE, PICTURE_NAME, files_at, kept_at
from .security.addresses import HOST

TITLE = "specviz: speculative decoding, token by token"
DESCRIPTION = (
    "A language model races against itself, once alone and once with the help of a small draft "
    "model. Every token is shown, and every number is measured."
)
START = "specviz/page.js"
_INLINE = re.compile(r"<script(?: type=\"importmap\")?>(.*?)</script>", re.DOTALL)


def index_html(offer: Mapping[str, Any], address: str | None) -> str:
    """The page's HTML. offer: the document of `offer_of`. address: the result of `address_of`."""
    preset = offer["presets"][0]
    drafter = str(preset["settings"]["drafter"])
    awaited = offer["awaited"]
    if awaited is not None:  # the recording that a visit begins with is of that pair
        drafter = offer["drafters"][awaited["pair"]][0]
    texts = {
        "@card": _card(address),
        "@offer": json.dumps(offer).replace("<", "\\u003c"),
        "@player": _player(drafter),
        "@prompt": escape(preset["prompt"]),
    }
    # In one pass: a text that is put in may look like a mark.
    any_mark = "|".join(texts)
    return re.sub(any_mark, lambda mark: texts[mark.group()], _frame(files_at()))


def address_of(scope: Scope) -> str | None:
    """The address at which the visitor reached the page, without a final slash; None if unknown."""
    headers = Headers(scope=scope)
    host = headers.get("x-forwarded-host") or headers.get("host", "")
    scheme = headers.get("x-forwarded-proto", scope.get("scheme", "http"))
    if scheme not in ("http", "https") or not HOST.fullmatch(host):
        return None
    root_path = scope.get("root_path", "").rstrip("/")
    return f"{scheme}://{host}{root_path}"


def inline_scripts() -> list[str]:
    """The inline scripts of all pages, as a policy names them."""
    texts = [*_INLINE.findall(_frame(PAGE_AT)), *_INLINE.findall(_frame(kept_at()))]
    return [_hashed(text) for text in dict.fromkeys(texts)]


# Plotly puts two style elements into the page: an empty one, whose rules it then sets one by one,
# and that of its maps.
INLINE_STYLES = [
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='",
    "'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='",
]


def inline_styles() -> list[str]:
    """The inline style sheets of all pages, as a policy names them."""
    return [*INLINE_STYLES, _hashed(style())]


def _hashed(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _frame(files_at: str) -> str:
    """The page without the parts that depend on the server and the request. files_at: the address
    of its files."""
    links = ""
    for path in first_modules(START):
        address = files_at + path.relative_to(PAGE).as_posix()
        links += f'<link rel="modulepreload" href="{address}">\n'
    picture = (PAGE / "favicon.svg").read_bytes()
    icon = base64.b64encode(picture).decode()
    page = _read("index.html")
    page = page.replace("@modules", links)
    page = page.replace("@files/", files_at)
    page = page.replace("@fonts", kept_at() + "fonts")
    page = page.replace("@description", DESCRIPTION)
    page = page.replace("@icon", f"data:image/svg+xml;base64,{icon}")
    page = page.replace("@brand", _read("brand.html"))
    return page.replace("@tools", _read("tools.html"))


@cache
def _player(drafter: str) -> str:
    """The player before there is a run: its sentence names the drafter that a visit begins with."""
    clause_in_file = drafter_kind("model").clause
    clause = drafter_kind(drafter).clause
    return _read("player.html").replace(clause_in_file, clause)


def _card(address: str | None) -> str:
    """The preview of a link to the page. It is in the HTML, as sites that show links run no
    scripts."""
    facts = {"title": TITLE, "description": DESCRIPTION, "type": "website"}
    if address is not None:
        facts["url"] = address + "/"
        if PICTURE.is_file():
            facts["image"] = f"{address}/{PICTURE_NAME}"
    size = "summary_large_image" if "image" in facts else "summary"
    tags = [f'<meta name="twitter:card" content="{size}">']
    for name, value in facts.items():
        tags.append(f'<meta property="og:{name}" content="{escape(value)}">')
    return "".join(tags)


def sign_in_html(status: str = "") -> str:
    """The page that asks for the password. status: a sentence about the last attempt."""
    return _read("signin.html").replace("@said", escape(status))


def api_html(programs: Mapping[str, tuple[str, Signature]], address: str | None) -> str:
    """The list of endpoints for programs. programs: descriptions and parameters by name."""
    sections = [
        _endpoint(name, about, signature, address or "")
        for name, (about, signature) in programs.items()
    ]
    return _read("api.html").replace("@endpoints", "".join(sections))


def _endpoint(name: str, about: str, signature: Signature, address: str) -> str:
    description = escape(" ".join(about.split()))
    rows = "".join(map(_field_row, signature.parameters.values()))
    call = escape(f"{address}/gradio_api/call/v2/{name}")
    return (
        f"<section><h2>{name}</h2><p>{description}</p>"
        f"<table><tr><th scope=col>field</th><th scope=col>type</th><th scope=col>default</th></tr>"
        f"{rows}</table><p><code>POST {call}</code></p></section>"
    )


def _field_row(parameter: Parameter) -> str:
    return (
        f"<tr><th scope=row>{parameter.name}</th><td>{escape(_type(parameter))}</td>"
        f"<td>{escape(_default(parameter))}</td></tr>"
    )


def _type(parameter: Parameter) -> str:
    hint = parameter.annotation
    if isinstance(hint, type):
        return hint.__name__
    return str(hint)


def _default(parameter: Parameter) -> str:
    if parameter.default is Parameter.empty:
        return ""
    return json.dumps(parameter.default)


def _read(name: str) -> str:
    return (PAGE / name).read_text("utf-8")
