"""The target's half of a round: one pass over the drafts and the verdict on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from ..engines.base import Engine, host_ids, prefill
from ..engines.static.engine import StaticEngine
from ..models.pair import Pair, context_length
from ..settings import Settings
from .drafters import Draft
from .graph_path import VerifyPrograms
from .numpy_path import HostSource
from .sampling import (
    Decide,
    Source,
    decide,
    decided,
    decided_greedily,
    probabilities,
    uniforms,
    verdict,
)
from .tokens import Judged
from .wheel import Doubles, Floats


class Verifier(Protocol):
    """The target of one run, as a judge of drafts."""

    def prefill(self, ids: Sequence[int]) -> float:
        """Read the prompt but for its last token; returns synchronised seconds."""
        ...

    def judge(self, ids: Sequence[int], draft: Draft | None) -> Judged:
        """One target pass over the last of the committed `ids` and the drafts, and its verdict.

        The tensors of the result are valid until the next call.
        """
        ...


class PlainVerifier:
    """Step by step over any engine."""

    def __init__(
        self,
        engine: Engine,
        pair: Pair,
        settings: Settings,
        source: Source,
        decide: Decide,
    ) -> None:
        self._engine, self._settings = engine, settings
        self._source, self._decide = source, decide
        self._device = pair.device

    def prefill(self, ids: Sequence[int]) -> float:
        return prefill(self._engine, ids)

    def judge(self, ids: Sequence[int], draft: Draft | None) -> Judged:
        feed = torch.tensor(ids[-1:], device=self._engine.device)
        if draft is not None:
            feed = torch.cat([feed, draft.ids.to(feed.device)])
        logits = self._engine.forward(feed, keep=len(feed)).to(self._device)  # [gamma + 1, vocab]
        p = probabilities(logits, self._settings)
        given = draft.ids if draft is not None else feed[:0].to(self._device)
        q = draft.q if draft is not None else p[:0]
        u = uniforms(len(given), self._source)
        # Drafted ids and verdict come to the host in one copy.
        decision = self._decide(p, q, given, u, self._source)
        *drafted, accepted, next_id = torch.cat([given, decision]).tolist()
        return Judged(draft, drafted, logits, p, u, verdict(len(drafted), accepted, next_id))


class HostVerifier:
    """The same where all is in the host's memory."""

    def __init__(self, engine: Engine, source: HostSource, decide: Decide) -> None:
        self._engine, self._source, self._decide = engine, source, decide

    def prefill(self, ids: Sequence[int]) -> float:
        return prefill(self._engine, ids)

    def judge(self, ids: Sequence[int], draft: Draft | None) -> Judged:
        drafted = [] if draft is None else draft.ids.tolist()
        feed = host_ids([ids[-1], *drafted])
        logits = self._engine.forward(feed, keep=len(feed), heat=self._source.heat)
        p, rows = self._source.judged.write(logits)
        u = self._source.numbers(len(drafted))
        if self._decide is decide:
            accepted, next_id = self._decided(rows, drafted, draft, u)
        else:
            given, q = (draft.ids, draft.q) if draft else (host_ids([]), p[:0])
            draws = torch.from_numpy(u)
            accepted, next_id = self._decide(p, q, given, draws, self._source).tolist()
        return Judged(draft, drafted, logits, p, u, verdict(len(drafted), accepted, next_id))

    def _decided(
        self, p: Floats, drafted: list[int], draft: Draft | None, u: Doubles
    ) -> tuple[int, int]:
        last = self._source.numbers(1).item()
        judged = self._source.judged
        if judged.greedy:
            return decided_greedily(drafted, judged.hot)
        q = draft.q.numpy() if draft else p[:0]
        return decided(p, q, drafted, u.tolist(), last, judged.wheel)


class StaticVerifier:
    """Pass and verdict in one program."""

    def __init__(
        self,
        engine: StaticEngine,
        pair: Pair,
        settings: Settings,
        source: Source,
        decide: Decide,
    ) -> None:
        self._engine, self._length = engine, settings.max_new_tokens
        self._limit = context_length(pair.target)
        self._programs = VerifyPrograms(engine, settings, source, decide)

    def prefill(self, ids: Sequence[int]) -> float:
        length = len(ids) + 1
        most = length + self._length
        self._programs.prepare(length, min(most, self._limit or most))
        return prefill(self._engine, ids)

    def judge(self, ids: Sequence[int], draft: Draft | None) -> Judged:
        given = (draft.ids, draft.q) if draft is not None else None
        result, p, logits, u = self._programs.run(ids, given)
        *drafted, accepted, next_id = result.tolist()  # the round's one copy to the host
        return Judged(draft, drafted, logits, p, u, verdict(len(drafted), accepted, next_id))


def make_verifier(
    engine: Engine, pair: Pair, settings: Settings, source: Source, decide: Decide
) -> Verifier:
    """The verifier that suits the engine's form."""
    if isinstance(engine, StaticEngine):
        return StaticVerifier(engine, pair, settings, source, decide)
    if isinstance(source, HostSource) and engine.device.type == "cpu":
        return HostVerifier(engine, source, decide)
    return PlainVerifier(engine, pair, settings, source, decide)
