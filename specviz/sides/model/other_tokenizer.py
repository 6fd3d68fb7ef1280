"""Drafts of a model with another tokenizer: as text in greedy runs, else the tokens that both have.

As text, the draft writes in tokens of its own, which are encoded again for the target, as assisted
generation of transformers does for two tokenizers. Any token may be drafted so, and a draft is
certain: q is one-hot, and the target keeps what it would have written itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...core.cost import pass_cost
from ...core.drafting import UNLIMITED, Drafter
from ...core.engine import host_ids, prefill
from ...core.engine_choice import make_engine
from ...core.model_facts import context_length
from ...core.pair import Pair
from ...core.sampling import greedy_ids, sample, uniforms
from ...core.shared_tokens import SharedTokens
from ...core.types import Draft, RunContext

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath, Engine

TAIL = 8  # ids before the draft that are encoded with it: the tokenizer sees where it begins


class DraftText:
    """The committed text in the draft's tokens: `ids`, which is never empty."""

    def __init__(self, pair: Pair, shared: SharedTokens, prompt: Sequence[int]) -> None:
        self._shared = shared
        self._read = len(prompt)  # ids of the target that are translated
        text = pair.tokenizer.decode(list(prompt), skip_special_tokens=True)
        own = pair.draft_tokenizer or pair.tokenizer
        ids = own(text)["input_ids"] if text else []
        first = getattr(pair.draft_tokenizer, "bos_token_id", None)
        self.ids = [i for i in ids if i < pair.draft_vocab] or [first or 0]

    def extend(self, committed: Sequence[int], drafted: Sequence[int]) -> None:
        """Read the target's `committed` ids, which begin with those that were read before.

        drafted: ids that the draft proposed to follow; those that spell the new text are kept, so
        that the draft goes on from its own tokens.
        """
        waiting, known = list(drafted), self._shared.draft.texts
        for text in self._runs(committed[self._read :]):
            if isinstance(text, int):
                self.ids.append(text)
                waiting = waiting[1:] if waiting[:1] == [text] else []
                continue
            while waiting and (piece := known.get(waiting[0])) and text.startswith(piece):
                self.ids.append(waiting.pop(0))
                text = text[len(piece) :]
            if text:
                self.ids += self._shared.draft.spell(text)
                waiting = []
        self._read = len(committed)

    def _runs(self, ids: Sequence[int]) -> list[bytes | int]:
        """The text of `ids`, with the draft's ids of special tokens in between; special tokens that
        the draft lacks are left out."""
        runs: list[bytes | int] = []
        for i in ids:
            text = self._shared.target.texts.get(i)
            if text is None:
                if i in self._shared.to_draft:
                    runs.append(self._shared.to_draft[i])
            elif runs and isinstance(runs[-1], bytes):
                runs[-1] += text
            else:
                runs.append(text)
        return runs


class TranslatedDrafter(Drafter):
    """A draft model that reads the text in tokens of its own. A subclass drafts with it.

    `_text` is what the draft reads, `_proposed` the ids of its own that it drafted last. What to
    forget is known when the next text is, and the room, which is counted in the draft's tokens.
    """

    def __init__(self, pair: Pair, run: RunContext, target: DecodingPath) -> None:
        assert pair.shared is not None
        self._shared = pair.shared
        self._pair, self._run = pair, run
        self.engine: Engine = make_engine(pair.draft_model, pair.draft_vocab)
        self.form = self.engine.form
        self._limit = context_length(pair.draft_model) or UNLIMITED
        self._text = DraftText(pair, pair.shared, [])
        self._proposed: Tensor | None = None

    def prefill(self, ids: Sequence[int]) -> float:
        self._text = DraftText(self._pair, self._shared, ids)
        read = self._text.ids[:-1]
        return prefill(self.engine, read) if len(read) <= self._limit else 0.0

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        text, proposed = self._text.ids, [] if self._proposed is None else self._proposed.tolist()
        known = len(text)
        self._text.extend(ids, proposed)
        self._proposed = None
        # The last drafted token is never fed, so it may lie one past the context.
        count = min(count, self._limit - len(text) + 1)
        if count < 1:
            return None
        pairs = enumerate(zip(proposed, text[known:], strict=False))
        kept = next((i for i, (ours, new) in pairs if ours != new), len(proposed))
        # At least one token is fed: the pass over it gives the first draft.
        self.engine.rollback(min(known + kept, self.engine.length, len(text) - 1))
        feed = host_ids(text[self.engine.length :]).to(self.engine.device)
        draft, self._proposed = self._drafted(ids, feed, count)
        return draft

    def step_cost(self) -> float:
        return pass_cost(self._pair.draft_model, self.engine.form)

    def _drafted(self, ids: Sequence[int], feed: Tensor, count: int) -> tuple[Draft | None, Tensor]:
        """Up to `count` tokens to follow the committed `ids`, after feeding `feed`, and the ids of
        the draft that were drafted for them, int64 [m]."""
        raise NotImplementedError


class TextDrafter(TranslatedDrafter):
    """The draft's likeliest text, in the target's tokens."""

    def _drafted(self, ids: Sequence[int], feed: Tensor, count: int) -> tuple[Draft | None, Tensor]:
        proposed: list[int] = []
        while len(proposed) < count:
            row = self.engine.forward(feed, keep=1)
            feed = greedy_ids(row)
            proposed.append(int(feed))
            if proposed[-1] not in self._shared.draft.texts:
                break  # a special token: what could follow it is no text
        found = self._encoded(ids, proposed)[:count]
        return Draft.certain(found, self._run) if found else None, torch.tensor(proposed)

    def _encoded(self, ids: Sequence[int], proposed: Sequence[int]) -> list[int]:
        """The target's ids for what the draft proposes to follow the committed `ids`."""
        shared = self._shared
        text = b"".join(shared.draft.texts.get(i, b"") for i in proposed)
        found = self._aligned(ids[-TAIL:], text)
        if found is None:
            found = shared.target.spell(text)
        end = shared.to_target.get(proposed[-1]) if proposed[-1] not in shared.draft.texts else None
        return [i for i in found if i < self._run.vocab] + ([] if end is None else [end])

    def _aligned(self, tail: Sequence[int], text: bytes) -> list[int] | None:
        """The ids of `text` after `tail`; None where the tail would be cut otherwise, or
        a character is not whole."""
        known, tokenizer = self._shared.target.texts, self._pair.tokenizer
        if any(i not in known for i in tail):  # special tokens would be read as text
            return None
        try:
            whole = (b"".join(known[i] for i in tail) + text).decode()
        except UnicodeDecodeError:
            return None
        ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
        return list(ids[len(tail) :]) if list(ids[: len(tail)]) == list(tail) else None


class SharedTokensDrafter(TranslatedDrafter):
    """The draft's own distributions, without the tokens that the target lacks: for sampling.

    Token-level intersection, after Timor et al. 2025 (arXiv 2502.05202): q is the draft's
    distribution over the shared tokens alone, normalised again, in the target's ids. The ordinary
    verdict is then exact: it needs no more than that a draft is drawn from the q that judges it.
    """

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


def translated_drafter(pair: Pair, run: RunContext, target: DecodingPath) -> Drafter:
    """The draft model of a pair whose draft has a tokenizer of its own: it drafts text where the
    run is greedy, else the tokens that both tokenizers have."""
    kind = TextDrafter if run.settings.greedy else SharedTokensDrafter
    return kind(pair, run, target)
