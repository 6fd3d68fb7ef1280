"""Draft and judge by captured programs: one for a draft step, and one for a target pass with its
verdict. A program is made for certain settings and a certain number of tokens. All random draws are
made beforehand by the run's own generator, on the device, in the order of the other paths: a seed
gives the same text.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from ...core.tensor_draws import DraftEnd, PremadeDraws, probabilities, sample, uniforms
from ...core.tensor_verdict import decide_on_tensors
from ...core.types import Draft, JudgedRound, RunContext, Verdict, host_ids

if TYPE_CHECKING:
    from .engine import StaticEngine

AHEAD = 4096  # least capacity in tokens at the start of a run
MAX_GRAPHED = 32  # most drafts of a captured pass: a graph holds its outputs, [drafts + 1, vocab]
FEEDS = (1, 2)  # tokens that a draft run begins with: two after a round that kept all drafts


class GraphPath:
    """A `DecodingPath` for the static engine. verdict_key: the settings that a verdict's program
    depends on."""

    def __init__(self, engine: StaticEngine, run: RunContext) -> None:
        self.engine = engine
        self.run = run
        settings = run.settings
        self._sampling = (settings.temperature, settings.top_k, settings.top_p)
        self.verdict_key = (*self._sampling, run.other_rule)

    @torch.inference_mode()
    def prepare(
        self,
        task: Literal["draft", "judge"],
        length: int,
        max_length: int,
        layers: int | None = None,
    ) -> None:
        """Reserve the cache and make programs for a run from `length` to `max_length` tokens."""
        gamma = self.run.settings.gamma
        longest = min(max_length, length + AHEAD) + gamma + 1
        widest = min(gamma, MAX_GRAPHED)
        if task == "draft":
            draft_keys = [self._draft_key(fed, layers) for fed in FEEDS]
            self.engine.reserve(longest, draft_keys)
            for fed in FEEDS:
                ids, positions, draws = self._blank_inputs(fed)
                self._step(ids, positions, draws[:1], layers)
        else:
            judge_keys = [self._judge_key(count) for count in range(widest + 1)]
            self.engine.reserve(longest, judge_keys)
            for count in range(widest + 1):
                ids, positions, draws = self._blank_inputs(count + 1)
                q = torch.zeros(count, self.run.vocab, device=self.engine.device)
                self._pass(ids, positions, q, draws)

    def _blank_inputs(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Dummy ids, positions and draws of `count` tokens, past the positions in use."""
        begin = self.engine.length
        ids, positions = self._on_device([0] * count, range(begin, begin + count))
        draws = torch.zeros(count, dtype=torch.float64, device=self.engine.device)
        return ids, positions, draws

    @torch.inference_mode()
    def draft(
        self,
        ids: Sequence[int],
        count: int,
        layers: int | None = None,
        min_confidence: float = 0.0,
    ) -> Draft:
        engine = self.engine
        run = self.run
        engine.reserve(len(ids) + count)
        uncached_ids = ids[engine.length : -max(FEEDS)]
        if uncached_ids:
            engine.forward(host_ids(uncached_ids).to(engine.device), keep=1)
        feed, positions = self._on_device(ids[engine.length :], range(engine.length, len(ids)))
        draws = uniforms(count, run.draws).to(engine.device)
        drafted = []
        q = []
        step_logits = []
        end = DraftEnd(min_confidence, run.settings)
        for step in range(count):
            outputs = self._step(feed, positions, draws[step : step + 1], layers)
            # Copies: the next step writes over its outputs.
            distribution, feed, logits = (output.clone() for output in outputs)
            positions = positions[-1:] + 1
            drafted.append(feed)
            q.append(distribution)
            step_logits.append(logits)
            if end.ends_after(logits, distribution):
                break
        engine.length = len(ids) + len(drafted) - 1  # the last drafted token was not fed
        return Draft.of_steps(drafted, q, step_logits, end.confidences, run)

    def judge(self, ids: Sequence[int], draft: Draft | None) -> JudgedRound:
        decision, p, logits, u = self.launch(ids, draft)
        *drafted, accepted, next_id = decision.tolist()  # the round's one copy to the host
        verdict = Verdict.on(len(drafted), accepted, next_id)
        return JudgedRound(draft, drafted, logits, p, u, verdict)

    @torch.inference_mode()
    def launch(
        self, ids: Sequence[int], draft: Draft | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """`judge` up to where the host must wait.

        Returns int64 [n + 2]: the drafted ids, how many are accepted, the next id; then p and
        logits, fp32 [n + 1, vocab], and the draws u, fp64 [n].
        """
        engine = self.engine
        run = self.run
        length = len(ids)
        count = 0
        q = torch.zeros(0, run.vocab, device=engine.device)
        if draft is not None:
            count = len(draft.ids)
            q = draft.q
        engine.reserve(length + count)
        feed, positions = self._on_device(ids[-1:], range(length - 1, length + count))
        if draft is not None:
            feed = torch.cat([feed, draft.ids])
        u = torch.cat([uniforms(count, run.draws), uniforms(1, run.draws)])
        decision, p, logits = self._pass(feed, positions, q, u)
        engine.length = length + count
        return decision, p, logits, u[:count]

    def _on_device(self, ids: Sequence[int], positions: range) -> tuple[Tensor, Tensor]:
        """Upload both as int64 tensors to the engine's device, without a wait."""
        # Pinned memory is reused only after the copy has ended.
        is_on_gpu = self.engine.device.type == "cuda"
        numbers = torch.tensor([*ids, *positions], pin_memory=is_on_gpu)
        numbers = numbers.to(self.engine.device, non_blocking=True)
        return numbers[: len(ids)], numbers[len(ids) :]

    def _draft_key(self, fed: int, layers: int | None) -> Hashable:
        return ("draft", fed, layers, *self._sampling)

    def _judge_key(self, drafts: int) -> Hashable:
        return ("judge", drafts, *self.verdict_key)

    def _step(
        self, feed: Tensor, positions: Tensor, draw: Tensor, layers: int | None
    ) -> tuple[Tensor, ...]:
        """One draft step over `feed` [n] at `positions` [n]: q [1, vocab], the id drawn with `draw`
        [1], and the logits [1, vocab]."""
        cache = self.engine.cache
        settings = self.run.settings

        def step(feed: Tensor, positions: Tensor, draw: Tensor) -> tuple[Tensor, ...]:
            logits = cache.logits(feed, positions, 1, layers)
            q, drawn = sample(logits, settings, draw)
            return q, drawn, logits

        inputs = (feed, positions, draw)
        program = self.engine.program(self._draft_key(len(feed), layers), step, inputs)
        return program(*inputs)

    def _pass(self, feed: Tensor, positions: Tensor, q: Tensor, u: Tensor) -> tuple[Tensor, ...]:
        """One target pass over the last token and n drafts, drawn from `q` [n, vocab], and their
        verdict by `u` [n + 1]: the outputs of `launch`."""
        cache = self.engine.cache
        settings = self.run.settings
        rule = self.run.other_rule or decide_on_tensors

        def judged(feed: Tensor, positions: Tensor, q: Tensor, u: Tensor) -> tuple[Tensor, ...]:
            logits = cache.logits(feed, positions, len(feed))
            p = probabilities(logits, settings)
            drafted = feed[1:]
            decision = rule(p, q, drafted, u[:-1], PremadeDraws(u[-1:]))
            return torch.cat([drafted, decision]), p, logits

        inputs = (feed, positions, q, u)
        if len(q) > MAX_GRAPHED:
            return judged(*inputs)
        program = self.engine.program(self._judge_key(len(q)), judged, inputs)
        return program(*inputs)
