"""Drafts of a model with another tokenizer, held to the tokens that both have: for sampling.

Token-level intersection, after Timor et al. 2025 (arXiv 2502.05202): q is the draft's distribution
over the shared tokens alone, normalised again, in the target's ids. The ordinary verdict is then
exact: it needs no more than that a draft is drawn from the q that judges it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.sampling import sample, uniforms
from ...core.types import DecodingPath, Draft, RunContext
from ...pairs.pair import Pair
from .translation import TranslatedDrafter


class SharedTokensDrafter(TranslatedDrafter):
    """The draft's own distributions, without the tokens that the target lacks."""

    def __init__(self, pair: Pair, run: RunContext, target: DecodingPath) -> None:
        super().__init__(pair, run, target)
        pairs = torch.tensor(self._shared.pairs, device=self.engine.device)
        self._ours, self._theirs = pairs.unbind(-1)  # int64 [shared], [shared]
        self._as_draft = torch.zeros(run.vocab, dtype=torch.long, device=self.engine.device)
        self._as_draft[self._ours] = self._theirs

    def _drafted(self, ids: Sequence[int], feed: Tensor, count: int) -> tuple[Draft, Tensor]:
        run, device = self._run, self.engine.device
        draws = uniforms(count, run.source).to(device)
        drafted, rows, logits, proposed = [], [], [], []
        for step in range(count):
            own = self.engine.forward(feed, keep=1)  # [1, draft's vocabulary]
            row = torch.full((1, run.vocab), -torch.inf, device=device)
            row[:, self._ours] = own[:, self._theirs]
            q, drawn = sample(row, run.settings, draws[step : step + 1])
            feed = self._as_draft[drawn]
            drafted.append(drawn)
            rows.append(q)
            logits.append(row)
            proposed.append(feed)
        given = torch.cat(drafted).to(run.device), torch.cat(rows).to(run.device)
        return Draft(*given, logits), torch.cat(proposed)
