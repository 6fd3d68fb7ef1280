"""Recordings on the page: those in a folder, and those that visitors open."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import TraceError
from ..runs.reading import TRACE
from ..runs.recording import MOST_PACKED
from .look import static_url
from .reader import Reader

SUFFIX = ".json.gz"
LONGEST = 4 * (MOST_PACKED // 3 + 2)  # base64 characters, a few more than a recording may have

Opened = Callable[[dict[str, Any]], Any]


def find_recordings(folder: Path, first: Sequence[str] = ()) -> dict[str, str]:
    """The address of each recording in a folder, by name; those in `first` come first."""
    found = {path.name.removesuffix(SUFFIX): path for path in sorted(folder.glob("*" + SUFFIX))}
    names = [name for name in first if name in found]
    names += [name for name in found if name not in names]
    return {name: static_url(found[name]) for name in names}


def opener(reader: Reader) -> Opened:
    """The server function that turns the file a visitor opens into a trace or a sentence."""

    # A function and not a method, because Gradio marks it; Gradio passes exactly one argument.
    def opened(asked: dict[str, Any]) -> Any:
        try:
            return reader.answer(TRACE, _unwrapped(asked))
        except TraceError as error:
            return {"error": str(error)}

    return opened


def _unwrapped(asked: Any) -> bytes:
    packed = asked.get("packed") if isinstance(asked, dict) else None
    try:
        if isinstance(packed, str):
            return base64.b64decode(packed[:LONGEST], validate=True)
    except binascii.Error:
        pass
    raise TraceError("this file did not arrive whole; open it again.")
