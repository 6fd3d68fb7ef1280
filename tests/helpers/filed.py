"""What follows from the values of a trace as JSON."""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]


def tokens(r: Values) -> list[Values]:
    """All tokens of a round."""
    return [*r["drafted"], *([r["last"]] if r["last"] else [])]


def emitted(r: Values) -> list[Values]:
    """The tokens that a round added to the text."""
    return [token for token in tokens(r) if token["outcome"] not in ("rejected", "ignored")]


def settings(header: Values) -> Values:
    """The settings of the first lane."""
    return next(iter(header["lanes"].values()))  # type: ignore[no-any-return]
