"""Recordings on the page: those in a folder, and those that visitors open."""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import TraceError
from ..trace.recording import MOST_PACKED, read_recording
from .look import static_url

SUFFIX = ".json.gz"
LONGEST = 4 * (MOST_PACKED // 3 + 2)  # base64 characters: just more than a recording may hold

Opened = Callable[[dict[str, Any]], dict[str, Any]]


def find_recordings(folder: Path, first: Sequence[str] = ()) -> dict[str, str]:
    """Where the browser finds each recording in a folder, by name; those of `first` lead."""
    found = {path.name.removesuffix(SUFFIX): path for path in sorted(folder.glob("*" + SUFFIX))}
    names = [name for name in first if name in found]
    names += [name for name in found if name not in names]
    return {name: static_url(found[name]) for name in names}


def opener() -> Opened:
    """A function for the player: bytes that a visitor opens become a trace or a sentence."""
    one_at_a_time = threading.Lock()

    # A function and not a method, for Gradio marks it; one argument, for Gradio passes one.
    def opened(asked: dict[str, Any]) -> dict[str, Any]:
        try:
            raw = _unwrapped(asked)
            with one_at_a_time:  # reading a large file takes time from the engine
                return {"trace": read_recording(raw).to_dict()}
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
