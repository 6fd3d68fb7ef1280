"""Models that exist only behind an API, recognised by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .spec import local_folder

# Names as their makers' APIs have them, with or without the maker before them. Those that were
# published, such as gpt2, gpt-oss and gpt-neo, are not among them.
CLOSED = {
    "OpenAI": re.compile(
        r"((openai|azure)/)?(chatgpt|gpt-?[3-9](?![a-z])|gpt-?4o|o[1-9](?![a-z0-9])|text-davinci|"
        r"davinci-00)[\w.:-]*",
        re.I,
    ),
    "Anthropic": re.compile(r"(anthropic/)?claude[\w.:-]*", re.I),
    "Google": re.compile(r"((google|models)/)?gemini[\w.:-]*", re.I),
}


def closed_maker(name: str) -> str | None:
    """Who offers the model of this name behind an API only; None for other names and folders."""
    makers = (maker for maker, known in CLOSED.items() if known.fullmatch(name.strip()))
    maker = next(makers, None)
    return None if maker is None or local_folder(name) else maker


def closed_sentence(names: Sequence[str]) -> str | None:
    """Why a pair of these names, a target and perhaps a draft, cannot race and what can be done
    instead; None if none of them is closed."""
    closed = list(dict.fromkeys(name for name in names if closed_maker(name)))
    if not closed:
        return None
    if names[0] not in closed:
        return f"{closed[0]} has no weights to load: name a draft of the hub, or a folder."
    has, gives, wrote = (
        ("has", "its API gives", "it") if len(closed) == 1 else ("have", "their APIs give", "they")
    )
    return (
        f"{' and '.join(closed)} {has} no weights to load, and {gives} no log-probabilities of "
        "given tokens, so no guess can be checked: see instead what a draft would have got right "
        f"of a text that {wrote} wrote, with `specviz guess`."
    )
