"""The page's JavaScript: modules in rooms, which import each other by names such as
"specviz/run/store.js". An import map says where a name lies: there is no build step."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path

from ..environment import ASSETS

PAGE = ASSETS / "page"
FETCHED = "choose"
"""The room that the page fetches when it is first opened; a run as one file has none of it."""


def modules(*, with_fetched: bool = True) -> dict[str, Path]:
    """The files of all modules by the name that others import, sorted."""
    found = {path.relative_to(PAGE): path for path in sorted(PAGE.rglob("*.js"))}
    return {
        f"specviz/{inner.as_posix()}": path
        for inner, path in found.items()
        if with_fetched or inner.parts[0] != FETCHED
    }


def served_map(folder: str) -> str:
    """The import map of a page on a server. folder: the address of `PAGE`, with a stroke at its
    end, as seen from the page."""
    return _import_map({"specviz/": f"./{folder}"})


def packed_map() -> str:
    """The import map of a page without a server: every module is in it, as a data: address."""
    packed = {
        name: base64.b64encode(path.read_bytes()).decode()
        for name, path in modules(with_fetched=False).items()
    }
    return _import_map({name: f"data:text/javascript;base64,{one}" for name, one in packed.items()})


def _import_map(imports: Mapping[str, str]) -> str:
    return json.dumps({"imports": imports}).replace("<", "\\u003c")
