"""Rounds that tell ids, outcomes and q alone.

The text of tokens and the other numbers on their cards take half of the time of a toy's round. A
test of the law of many tokens does without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from specviz import Token
from specviz.core.text import Texts
from specviz.core.types import JudgedRound


class BareViews:
    """Takes the place of `Views`: of what is on a card, only q."""

    def __init__(self, judged: JudgedRound, *_: Any) -> None:
        draft = judged.draft
        self._q = [] if draft is None else draft.q.gather(-1, draft.ids[:, None])[:, 0].tolist()

    def check(self, index: int) -> None:
        pass

    def token(self, place: int, token_id: int, text: str, outcome: str) -> Token:
        return Token(token_id, text, outcome, q=self._q[place])

    def unjudged(self, place: int, token_id: int, text: str) -> Token:
        return self.token(place, token_id, text, "ignored")

    def final(self, place: int, token_id: int, text: str, outcome: str) -> Token:
        return Token(token_id, text, outcome)


def no_texts(stream: Any, drafted: Sequence[int], emitted: Sequence[int], kept: int) -> Texts:
    """Takes the place of `texts_of`."""
    return Texts([""] * len(emitted), [""] * (len(drafted) - kept))


@contextmanager
def bare_rounds() -> Iterator[None]:
    """Within it, rounds are bare."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specviz.core.tokens.Views", BareViews)
        patch.setattr("specviz.core.tokens.texts_of", no_texts)
        yield
