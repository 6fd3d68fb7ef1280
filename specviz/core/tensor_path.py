"""Drafting and judging call by call, on any device: the plainest path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch

from .engine import host_ids
from .sampling import probabilities, sample, uniforms
from .types import Draft, Judged, RunContext, Verdict
from .verdicts import decide

if TYPE_CHECKING:
    from .protocols import Engine


class TensorPath:
    """A `DecodingPath` for any engine on any device: the rules of `sampling` and `verdicts`."""

    def __init__(self, engine: Engine, run: RunContext) -> None:
        self.engine, self._run = engine, run

    def prepare(
        self, task: Literal["draft", "judge"], length: int, most: int, layers: int | None = None
    ) -> None:
        pass  # nothing is made beforehand

    def draft(self, ids: Sequence[int], count: int, layers: int | None = None) -> Draft:
        engine, run = self.engine, self._run
        draws = uniforms(count, run.source).to(engine.device)
        feed = host_ids(ids[engine.length :]).to(engine.device)
        drafted, rows, logits = [], [], []
        for step in range(count):
            row = engine.forward(feed, keep=1, layers=layers)  # [1, vocab]
            q, feed = sample(row, run.settings, draws[step : step + 1])
            drafted.append(feed)
            rows.append(q)
            logits.append(row)
        return Draft(torch.cat(drafted).to(run.device), torch.cat(rows).to(run.device), logits)

    def judge(self, ids: Sequence[int], draft: Draft | None) -> Judged:
        engine, run = self.engine, self._run
        feed = torch.tensor(ids[-1:], device=engine.device)
        if draft is not None:
            feed = torch.cat([feed, draft.ids.to(feed.device)])
        logits = engine.forward(feed, keep=len(feed)).to(run.device)  # [n + 1, vocab]
        p = probabilities(logits, run.settings)
        given = draft.ids if draft is not None else feed[:0].to(run.device)
        q = draft.q if draft is not None else p[:0]
        u = uniforms(len(given), run.source)
        # Drafted ids and verdict come to the host in one copy.
        decision = (run.decide or decide)(p, q, given, u, run.source)
        *drafted, accepted, next_id = torch.cat([given, decision]).tolist()
        return Judged(draft, drafted, logits, p, u, Verdict.on(len(drafted), accepted, next_id))
