"""Many samples cheaply: rounds with ids, outcomes, q and u alone, and short texts of one lane.

Texts of tokens and the other numbers of their cards take half of the time of a toy's round. A
test of the distribution of many tokens needs neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from specviz import Pair, Settings, Token
from specviz.core.lanes import SPECULATIVE
from specviz.core.loop import LaneOptions, start_lane
from specviz.core.text import Texts
from specviz.core.types import JudgedRound


class BareViews:
    """Replaces `Views`: computes only q and u."""

    def __init__(self, judged: JudgedRound, *_: Any) -> None:
        draft = judged.draft
        self._q = [] if draft is None else draft.q.gather(-1, draft.ids[:, None])[:, 0].tolist()
        self._u = torch.as_tensor(judged.u).tolist()

    def check(self, index: int) -> None:
        pass

    def token(self, place: int, token_id: int, text: str, outcome: str) -> Token:
        return Token(token_id, text, outcome, q=self._q[place], u=self._u[place])

    def unjudged(self, place: int, token_id: int, text: str) -> Token:
        return self.token(place, token_id, text, "ignored")

    def final(self, place: int, token_id: int, text: str, outcome: str) -> Token:
        return Token(token_id, text, outcome)


def no_texts(stream: Any, drafted: Sequence[int], emitted: Sequence[int], kept: int) -> Texts:
    """Replace `texts_of`."""
    return Texts([""] * len(emitted), [""] * (len(drafted) - kept))


@contextmanager
def cold_races() -> Iterator[None]:
    """Skip the warm-up of races, which takes a third of a toy's race. Only times depend on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specviz.core.race.warm_up", lambda *_: None)
        yield


@contextmanager
def bare_rounds() -> Iterator[None]:
    """Make rounds bare, and skip the warm-up of races."""
    with cold_races(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("specviz.core.tokens.Views", BareViews)
        patch.setattr("specviz.core.tokens.texts_of", no_texts)
        yield


def short_texts(
    pair: Pair,
    prompt: Sequence[int],
    settings: Settings,
    *,
    count: int,
    shown: int,
    options: LaneOptions | None = None,
) -> Iterator[tuple[int, ...]]:
    """Draw `count` texts after a prompt; yields the first `shown` ids of each.

    One lane goes back to the prompt after each text: making its engines takes several times as long
    as a short text. Texts are independent, since each one draws numbers of its own.
    """
    lane = start_lane(pair, prompt, settings, SPECULATIVE, options)
    lane.prefill()
    begin = len(prompt)
    with bare_rounds():
        for _ in range(count):
            while lane.ended is None and len(lane.ids) < begin + shown:
                lane.round()
            yield tuple(lane.ids[begin : begin + shown])
            del lane.ids[begin:]
            lane.ended = None
            lane.target_engine.rollback(begin - 1)
            lane.drafter.rollback(begin - 1)
