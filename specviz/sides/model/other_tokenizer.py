"""Drafts of a model with another tokenizer: as text in greedy runs, otherwise as tokens that both
have.

As text, the draft model writes its own tokens, which are encoded again for the target, as in
transformers' assisted generation for two tokenizers. Any token can be drafted so. The draft is
certain: q is one-hot, and the target keeps what it would have written itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...core.cost import pass_cost
from ...core.drafter import UNLIMITED, Drafter
from ...core.engine import prefill
from ...core.engine_choice import make_engine
from ...core.model_facts import before_border, context_length, rotation_borders
from ...core.pair import Pair
from ...core.shared_tokens import SharedTokens
from ...core.tensor_draws import DraftEnd, greedy_ids, sample, uniforms
from ...core.types import Draft, RunContext, host_ids

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath, Engine

TAIL = 8  # ids before the draft that are encoded with it, as context for the tokenizer


class DraftText:
    """The committed text in the draft's tokens: `ids`, which is never empty."""

    def __init__(self, pair: Pair, shared: SharedTokens, prompt: Sequence[int]) -> None:
        self._shared = shared
        self._read = len(prompt)  # ids of the target that are translated already
        self.ids = _draft_ids(pair, prompt)
        if not self.ids:
            bos_id = getattr(pair.draft_tokenizer, "bos_token_id", None)
            self.ids.append(bos_id or 0)

    def extend(self, committed: Sequence[int], drafted: Sequence[int]) -> None:
        """Read the target's `committed` ids, which begin with those that were read before.

        drafted: the draft model's proposal for the next ids. Those that spell the new text are
        kept, so that the draft model continues its own tokens.
        """
        proposed = list(drafted)
        for run in self._runs(committed[self._read :]):
            if isinstance(run, int):
                self.ids.append(run)
                proposed = proposed[1:] if proposed[:1] == [run] else []
                continue
            spelled, rest = self._spelling_start(run, proposed)
            self.ids += proposed[:spelled]
            proposed = proposed[spelled:]
            if rest:
                self.ids += self._shared.draft.spell(rest)
                proposed = []
        self._read = len(committed)

    def _spelling_start(self, text: bytes, drafted: Sequence[int]) -> tuple[int, bytes]:
        """The number of `drafted` ids that spell the start of the text, and the rest of the
        text."""
        spelled = 0
        for token_id in drafted:
            piece = self._shared.draft.texts.get(token_id)
            if not piece or not text.startswith(piece):
                break
            text = text[len(piece) :]
            spelled += 1
        return spelled, text

    def _runs(self, ids: Sequence[int]) -> list[bytes | int]:
        """The text of `ids`, with the draft's ids of special tokens in between; special tokens
        that the draft lacks are left out."""
        runs: list[bytes | int] = []
        for token_id in ids:
            text = self._shared.target.texts.get(token_id)
            if text is None:
                special_id = self._shared.to_draft.get(token_id)
                if special_id is not None:
                    runs.append(special_id)
            elif runs and isinstance(runs[-1], bytes):
                runs[-1] += text
            else:
                runs.append(text)
        return runs


def _draft_ids(pair: Pair, prompt: Sequence[int]) -> list[int]:
    """The draft's ids for the text of a prompt; none for an empty text."""
    text = pair.tokenizer.decode(list(prompt), skip_special_tokens=True)
    if not text:
        return []
    tokenizer = pair.draft_tokenizer or pair.tokenizer
    encoded = tokenizer(text)["input_ids"]
    return [token_id for token_id in encoded if token_id < pair.draft_vocab]


class TranslatedDrafter(Drafter):
    """A draft model that reads the text in its own tokens; subclasses draft with it.

    `_text` is the text in the draft's tokens, `_proposed` the draft's own ids of its last draft.
    Both the rollback and the room, which counts the draft's tokens, are known only with the next
    text.
    """

    def __init__(self, pair: Pair, run: RunContext, target_path: DecodingPath) -> None:
        assert pair.shared is not None
        self._shared = pair.shared
        self._pair = pair
        self._run = run
        self.engine: Engine = make_engine(pair.draft_model, pair.draft_vocab)
        self.engine_name = self.engine.name
        self._context = context_length(pair.draft_model) or UNLIMITED
        self._borders = rotation_borders(pair.draft_model)
        self._text = DraftText(pair, pair.shared, [])
        self._proposed: Tensor | None = None

    def prefill(self, ids: Sequence[int]) -> float:
        self._text = DraftText(self._pair, self._shared, ids)
        prefix = self._text.ids[:-1]
        if len(prefix) > self._context:
            return 0.0
        return prefill(self.engine, prefix)

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        proposed: list[int] = []
        if self._proposed is not None:
            proposed = self._proposed.tolist()
            self._proposed = None
        draft_ids = self._text.ids
        known = len(draft_ids)
        self._text.extend(ids, proposed)
        length = len(draft_ids)
        # The last drafted token is never fed, so it may be one past the context.
        room = self._context - length + 1
        count = min(count, room)
        count = 1 + before_border(self._borders, length, count - 1)
        if count < 1:
            return None
        kept = _agreeing(proposed, draft_ids[known:])
        # At least one token is fed: the pass over it gives the first draft.
        self.engine.rollback(min(known + kept, self.engine.length, length - 1))
        uncached_ids = draft_ids[self.engine.length :]
        feed = host_ids(uncached_ids).to(self.engine.device)
        draft, self._proposed = self._drafted(ids, feed, count)
        return draft

    def step_cost(self) -> float:
        return pass_cost(self._pair.draft_model, self.engine.name)

    def _drafted(self, ids: Sequence[int], feed: Tensor, count: int) -> tuple[Draft | None, Tensor]:
        """Draft up to `count` tokens after the committed `ids`, after feeding `feed`. Returns them
        with the draft's own ids for them, int64 [m]."""
        raise NotImplementedError


def _agreeing(proposed: Sequence[int], added: Sequence[int]) -> int:
    """The number of proposed ids that are in the text; all of them if none is contradicted."""
    for index, (proposed_id, added_id) in enumerate(zip(proposed, added, strict=False)):
        if proposed_id != added_id:
            return index
    return len(proposed)


class TextDrafter(TranslatedDrafter):
    """The draft model's likeliest text, in the target's tokens."""

    def _drafted(self, ids: Sequence[int], feed: Tensor, count: int) -> tuple[Draft | None, Tensor]:
        proposed: list[int] = []
        end = DraftEnd(self.min_confidence, self._run.settings)
        while len(proposed) < count:
            logits = self.engine.forward(feed, keep=1)
            feed = greedy_ids(logits)
            token_id = int(feed)
            proposed.append(token_id)
            if token_id not in self._shared.draft.texts:
                break  # no text follows a special token
            if end.ends_after(logits, logits):
                break
        drafted = self._encoded(ids, proposed)[:count]
        draft = None
        if drafted:
            draft = Draft.certain(drafted, self._run)
        return draft, torch.tensor(proposed)

    def _encoded(self, ids: Sequence[int], proposed: Sequence[int]) -> list[int]:
        """The target's ids for the draft's proposal after the committed `ids`."""
        shared = self._shared
        pieces = [shared.draft.texts.get(token_id, b"") for token_id in proposed]
        text = b"".join(pieces)
        encoded = self._encoded_after(ids[-TAIL:], text)
        if encoded is None:
            encoded = shared.target.spell(text)
        drafted = [token_id for token_id in encoded if token_id < self._run.vocab]
        last = proposed[-1]
        if last not in shared.draft.texts and last in shared.to_target:
            drafted.append(shared.to_target[last])
        return drafted

    def _encoded_after(self, tail: Sequence[int], text: bytes) -> list[int] | None:
        """The ids of `text` after `tail`; None if the tail would be split differently, or if a
        character is incomplete."""
        texts = self._shared.target.texts
        if any(token_id not in texts for token_id in tail):  # special tokens would be read as text
            return None
        tail_text = b"".join(texts[token_id] for token_id in tail)
        try:
            whole_text = (tail_text + text).decode()
        except UnicodeDecodeError:
            return None
        encoding = self._pair.tokenizer(whole_text, add_special_tokens=False)
        ids = list(encoding["input_ids"])
        if ids[: len(tail)] != list(tail):
            return None
        return ids[len(tail) :]


class SharedTokensDrafter(TranslatedDrafter):
    """The draft's own distributions, without the tokens that the target lacks: for sampling.

    Token-level intersection, after Timor et al. 2025 (arXiv 2502.05202): q is the draft's
    distribution over the shared tokens alone, normalised again, in the target's ids. The ordinary
    verdict is then exact: a draft must only be drawn from the q that judges it.
    """

    def __init__(self, pair: Pair, run: RunContext, target_path: DecodingPath) -> None:
        super().__init__(pair, run, target_path)
        pairs = torch.tensor(self._shared.pairs, device=self.engine.device)
        self._target_ids, self._draft_ids = pairs.unbind(-1)  # int64 [shared], [shared]
        self._as_draft = torch.zeros(run.vocab, dtype=torch.long, device=self.engine.device)
        self._as_draft[self._target_ids] = self._draft_ids

    def _drafted(self, ids: Sequence[int], feed: Tensor, count: int) -> tuple[Draft, Tensor]:
        run = self._run
        device = self.engine.device
        draws = uniforms(count, run.draws).to(device)
        drafted = []
        q = []
        step_logits = []
        proposed = []
        end = DraftEnd(self.min_confidence, run.settings)
        for step in range(count):
            draft_logits = self.engine.forward(feed, keep=1)  # [1, draft's vocabulary]
            logits = torch.full((1, run.vocab), -torch.inf, device=device)
            logits[:, self._target_ids] = draft_logits[:, self._draft_ids]
            distribution, drawn = sample(logits, run.settings, draws[step : step + 1])
            feed = self._as_draft[drawn]
            drafted.append(drawn)
            q.append(distribution)
            step_logits.append(logits)
            proposed.append(feed)
            if end.ends_after(logits, distribution):
                break
        draft = Draft.of_steps(drafted, q, step_logits, end.confidences, run)
        return draft, torch.cat(proposed)


def translated_drafter(pair: Pair, run: RunContext, target_path: DecodingPath) -> Drafter:
    """The drafter of a pair whose draft has its own tokenizer: it drafts text in greedy runs,
    otherwise tokens that both tokenizers have."""
    if run.settings.greedy:
        return TextDrafter(pair, run, target_path)
    return SharedTokensDrafter(pair, run, target_path)
