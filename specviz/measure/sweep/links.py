"""The address of the page that has a row set."""

from __future__ import annotations

from urllib.parse import urlencode

from ...environment import BUILTIN
from .types import Configuration, Machine, SweepRequest

PAGE = "http://127.0.0.1:7860/"
"""Where `python -m specviz page` serves the page by default."""


def page_query(row: Configuration, request: SweepRequest, machine: Machine | None) -> str:
    """The query of the page's address with the settings of the row, such as
    "?drafter=ngram&gamma=5&temperature=0"; `assets/page/run/address.js` reads it."""
    values: dict[str, object] = {}
    if machine is not None and machine.pair not in (BUILTIN, "custom"):
        values["pair"] = machine.pair
    values |= {
        "drafter": row.drafter,
        "gamma": row.gamma,
        "gamma_policy": row.policy,
        "temperature": f"{row.temperature:g}",
    }
    if request.base.top_k:
        values["top_k"] = request.base.top_k
    if request.base.top_p < 1.0:
        values["top_p"] = f"{request.base.top_p:g}"
    return "?" + urlencode(values)
