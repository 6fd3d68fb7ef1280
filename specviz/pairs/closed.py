"""Models that are available through an API only, recognised by name without a request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..files.local_paths import local_path

# Names in their makers' APIs, with or without the maker in front. Published models such as gpt2,
# gpt-oss and gpt-neo do not match.
CLOSED = re.compile(
    r"(((openai|azure)/)?(chatgpt|gpt-?[3-9](?![a-z])|gpt-?4o|o[1-9](?![a-z0-9])|text-davinci|"
    r"davinci-00)|(anthropic/)?claude|((google|models)/)?gemini)[\w.:-]*",
    re.I,
)


def is_closed(name: str) -> bool:
    """Whether this model is available through an API only, and no folder has its name."""
    return bool(CLOSED.fullmatch(name.strip())) and not local_path(name)


def closed_sentence(names: Sequence[str]) -> str | None:
    """The reason why closed models among these names cannot race, and what to do instead; None if
    none is closed."""
    if is_closed(names[0]):
        return (
            f"{names[0]} has no weights to load, and its API returns no log-probabilities for "
            "given tokens, so no guess can be checked: use `specviz guess` to see how much of a "
            "text by this model a draft would have predicted."
        )
    for name in names[1:]:
        if is_closed(name):
            return (
                f"{name} has no weights to load: use a draft from the hub, a folder or a GGUF file."
            )
    return None
