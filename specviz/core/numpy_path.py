"""Drafting and judging in the host's memory: what runs on a processor.

Calls are few: the interpreter's share of a small model's draft step is as long as its pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from .draws import Distributions, HostDraws
from .engine import host_ids
from .types import Draft, Judged, RunContext, Verdict
from .verdict import decided, decided_greedily

if TYPE_CHECKING:
    from .protocols import DraftAtOnce, Engine


class NumpyPath:
    """A `DecodingPath` for an engine on the processor.

    at_once: drafts a whole run in one call, from the same uniforms, if the engine can.
    """

    def __init__(self, engine: Engine, run: RunContext, at_once: DraftAtOnce | None = None) -> None:
        assert isinstance(run.source, HostDraws)
        self.engine, self._run, self._source = engine, run, run.source
        self._at_once = at_once
        self._drafted = Distributions(run.settings, run.vocab)
        self._judged = Distributions(run.settings, run.vocab)

    def prepare(
        self, task: Literal["draft", "judge"], length: int, most: int, layers: int | None = None
    ) -> None:
        (self._drafted if task == "draft" else self._judged).reserve(self._run.settings.gamma + 1)

    def draft(self, ids: Sequence[int], count: int, layers: int | None = None) -> Draft:
        rows, uniforms = self._drafted, self._source.numbers(count)
        unread = np.array(ids[self.engine.length :], np.int64)
        if self._at_once is not None:
            return self._at_once(unread, uniforms, rows, layers)
        rows.reserve(count)
        feed, found = torch.from_numpy(unread), []
        for step, uniform in enumerate(uniforms.tolist()):
            row = self.engine.forward(feed, keep=1, layers=layers, temperature=rows.temperature)
            found.append(row)
            feed = rows.draw(step, row, uniform)
        return Draft(rows.ids[count], rows.p[count], found)

    def judge(self, ids: Sequence[int], draft: Draft | None) -> Judged:
        drafted = [] if draft is None else draft.ids.tolist()
        feed = host_ids([ids[-1], *drafted])
        logits = self.engine.forward(feed, keep=len(feed), temperature=self._judged.temperature)
        p, rows = self._judged.write(logits)
        u = self._source.numbers(len(drafted))
        q = draft.q if draft else p[:0]
        if self._run.decide is not None:  # other verdicts take tensors, as a benchmark's own does
            given, draws = draft.ids if draft else feed[:0], torch.from_numpy(u)
            accepted, next_id = self._run.decide(p, q, given, draws, self._source).tolist()
        elif self._run.settings.greedy:
            self._source.numbers(1)  # so that a seed gives every verdict the same draws
            accepted, next_id = decided_greedily(drafted, self._judged.argmax)
        else:
            last = self._source.numbers(1).item()
            accepted, next_id = decided(rows, q.numpy(), drafted, u.tolist(), last)
        return Judged(draft, drafted, logits, p, u, Verdict.on(len(drafted), accepted, next_id))
