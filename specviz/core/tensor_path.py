"""Draft and judge call by call, on any device: the plainest path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch

from .tensor_draws import DraftEnd, probabilities, sample, uniforms
from .tensor_verdict import decide_on_tensors
from .types import Draft, JudgedRound, RunContext, Verdict, host_ids

if TYPE_CHECKING:
    from .protocols import Engine


class TensorPath:
    """A `DecodingPath` for any engine on any device, by `tensor_draws` and `tensor_verdict`."""

    def __init__(self, engine: Engine, run: RunContext) -> None:
        self.engine = engine
        self._run = run

    def prepare(
        self,
        task: Literal["draft", "judge"],
        length: int,
        max_length: int,
        layers: int | None = None,
    ) -> None:
        pass  # this path needs no preparation

    def draft(
        self,
        ids: Sequence[int],
        count: int,
        layers: int | None = None,
        min_confidence: float = 0.0,
    ) -> Draft:
        engine = self.engine
        run = self._run
        draws = uniforms(count, run.draws).to(engine.device)
        feed = host_ids(ids[engine.length :]).to(engine.device)
        drafted = []
        q = []
        step_logits = []
        end = DraftEnd(min_confidence, run.settings)
        for step in range(count):
            logits = engine.forward(feed, keep=1, layers=layers)  # [1, vocab]
            distribution, feed = sample(logits, run.settings, draws[step : step + 1])
            drafted.append(feed)
            q.append(distribution)
            step_logits.append(logits)
            if end.ends_after(logits, distribution):
                break
        return Draft.of_steps(drafted, q, step_logits, end.confidences, run)

    def judge(self, ids: Sequence[int], draft: Draft | None) -> JudgedRound:
        engine = self.engine
        run = self._run
        feed = torch.tensor(ids[-1:], device=engine.device)
        if draft is not None:
            feed = torch.cat([feed, draft.ids.to(feed.device)])
        logits = engine.forward(feed, keep=len(feed)).to(run.device)  # [n + 1, vocab]
        p = probabilities(logits, run.settings)
        if draft is None:
            drafted_ids = feed[:0].to(run.device)
            q = p[:0]
        else:
            drafted_ids = draft.ids
            q = draft.q
        u = uniforms(len(drafted_ids), run.draws)
        rule = run.other_rule or decide_on_tensors
        decision = rule(p, q, drafted_ids, u, run.draws)
        # Drafted ids and verdict come to the host in one copy.
        *drafted, accepted, next_id = torch.cat([drafted_ids, decision]).tolist()
        verdict = Verdict.on(len(drafted), accepted, next_id)
        return JudgedRound(draft, drafted, logits, p, u, verdict)
