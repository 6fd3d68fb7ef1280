"""The counters that serving engines keep of their speculation, to check a stream against."""

from __future__ import annotations

import re

from ...errors import PairError, ServerError
from ..wire import Server

Counted = dict[str, int]

NAMES = {"drafts": "steps", "draft_tokens": "drafted", "accepted_tokens": "accepted"}
LINE = re.compile(
    r"^(?:vllm:|llamacpp:)spec_decode_num_(drafts|draft_tokens|accepted_tokens)_total"
    r"(\{[^}]*\})? ([0-9.e+]+)$",
    re.MULTILINE,
)


def counters(server: Server, model: str) -> Counted | None:
    """The verify steps, and the drafted and accepted tokens in them, that a server has counted for
    a model since it began; None if it tells none."""
    try:
        text = server.text("/metrics")
    except (PairError, ServerError):
        return None
    found: Counted = {}
    for name, labels, value in LINE.findall(text):
        if "model_name=" not in labels or f'model_name="{model}"' in labels:
            found[NAMES[name]] = found.get(NAMES[name], 0) + int(float(value))
    return found if len(found) == len(NAMES) else None


def moved(before: Counted | None, after: Counted | None) -> Counted | None:
    """By how much counters moved; None if they are unknown, or began anew in between."""
    if before is None or after is None:
        return None
    difference = {name: after[name] - before[name] for name in after}
    return None if min(difference.values()) < 0 else difference
