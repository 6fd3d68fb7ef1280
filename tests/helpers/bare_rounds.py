"""Rounds that tell ids, outcomes and q alone.

The text of tokens and the other numbers on their cards take half of the time of a toy's round. A
test of the law of many tokens does without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from specviz import Token
from specviz.core.types import JudgedRound


class BareAnnotator:
    """Takes the place of `Annotator`."""

    def __init__(self, *_: Any) -> None:
        pass

    def tokens(
        self, judged: JudgedRound, emitted: list[int], index: int, ended: bool
    ) -> tuple[list[Token], Token | None, bool]:
        accepted, next_id, outcome = judged.verdict
        kept = min(accepted, len(emitted))
        is_cut = len(emitted) <= accepted  # by an end of text among the drafts
        outcomes = ["accepted"] * kept
        if not is_cut:
            outcomes.append("rejected")
        outcomes += ["ignored"] * len(judged.ids)
        drafted = []
        if judged.draft is not None:
            q = judged.draft.q.gather(-1, judged.draft.ids[:, None])[:, 0].tolist()
            for token_id, own, chance in zip(judged.ids, outcomes, q, strict=False):
                drafted.append(Token(token_id, "", own, q=chance))
        return drafted, None if is_cut else Token(next_id, "", outcome), False


@contextmanager
def bare_rounds() -> Iterator[None]:
    """Within it, rounds of lanes that start are bare."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specviz.core.loop.Annotator", BareAnnotator)
        yield
