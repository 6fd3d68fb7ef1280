"""Draft and judge in the host's memory: the path of models on a processor.

It makes few calls, because Python's share of a small model's draft step takes as long as the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from .draws import Distributions, HostDraws
from .registry import verdict_kind
from .tensor_draws import DraftEnd
from .types import Draft, JudgedRound, RunContext, Verdict, host_ids
from .verdict import decide_greedily, decide_in_numpy

if TYPE_CHECKING:
    from .protocols import DraftAtOnce, Engine, HostRule


class NumpyPath:
    """A `DecodingPath` for an engine on the processor.

    draft_at_once: drafts a whole run in one call, from the same uniforms, if the engine can.
    """

    def __init__(
        self, engine: Engine, run: RunContext, draft_at_once: DraftAtOnce | None = None
    ) -> None:
        assert isinstance(run.draws, HostDraws)
        self.engine = engine
        self._run = run
        self._draws = run.draws
        self._decide = _host_rule(run)
        self._draft_at_once = draft_at_once
        self._draft_distributions = Distributions(run.settings, run.vocab)
        self._target_distributions = Distributions(run.settings, run.vocab)

    def prepare(
        self,
        task: Literal["draft", "judge"],
        length: int,
        max_length: int,
        layers: int | None = None,
    ) -> None:
        # Only the buffers, which depend on no length: lengths matter to paths with graphs.
        distributions = self._draft_distributions if task == "draft" else self._target_distributions
        distributions.reserve(self._run.settings.gamma + 1)

    def draft(
        self,
        ids: Sequence[int],
        count: int,
        layers: int | None = None,
        min_confidence: float = 0.0,
    ) -> Draft:
        distributions = self._draft_distributions
        uniforms = self._draws.numbers(count)
        uncached_ids = np.array(ids[self.engine.length :], np.int64)
        if self._draft_at_once is not None:
            return self._draft_at_once(
                uncached_ids, uniforms, distributions, layers, min_confidence
            )
        distributions.reserve(count)
        feed = torch.from_numpy(uncached_ids)
        step_logits: list[torch.Tensor] = []
        end = DraftEnd(min_confidence, self._run.settings)
        for step, uniform in enumerate(uniforms.tolist()):
            logits = self.engine.forward(
                feed, keep=1, layers=layers, temperature=distributions.temperature
            )
            step_logits.append(logits)
            feed = distributions.draw(step, logits, uniform)
            if end.ends_after(logits, distributions.row(step)):
                break
        length = len(step_logits)
        return Draft(
            distributions.ids(length),
            distributions.rows(length),
            step_logits,
            confidences=end.confidences,
        )

    def judge(self, ids: Sequence[int], draft: Draft | None) -> JudgedRound:
        drafted = [] if draft is None else draft.ids.tolist()
        feed = host_ids([ids[-1], *drafted])
        logits = self.engine.forward(
            feed, keep=len(feed), temperature=self._target_distributions.temperature
        )
        # This may overwrite the logits. NaN stays NaN there, so `Views.check` still finds it.
        p, p_array = self._target_distributions.write(logits)
        if draft is None:
            drafted_ids = feed[:0]
            q = p[:0]
        else:
            drafted_ids = draft.ids
            q = draft.q
        u = self._draws.numbers(len(drafted))
        if self._decide is None:
            assert self._run.other_rule is not None
            decision = self._run.other_rule(p, q, drafted_ids, torch.from_numpy(u), self._draws)
            accepted, next_id = decision.tolist()
        elif self._run.settings.greedy:
            self._draws.numbers(1)  # a seed then gives every verdict the same draws
            accepted, next_id = decide_greedily(drafted, self._target_distributions.argmax)
        else:
            last = self._draws.numbers(1).item()
            accepted, next_id = self._decide(p_array, q.numpy(), drafted, u.tolist(), last)
        verdict = Verdict.on(len(drafted), accepted, next_id)
        return JudgedRound(draft, drafted, logits, p, u, verdict)


def _host_rule(run: RunContext) -> HostRule | None:
    """The form of the run's rule for rows in the host's memory; None if it has none."""
    if run.other_rule is None:
        return decide_in_numpy
    kind = verdict_kind(run.settings.effective_verdict)
    return kind.decide_on_host if run.other_rule is kind.decide else None
