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

from ...core.drafting import Drafter
from ...core.sampling import greedy_ids, sample, uniforms
from ...core.types import Draft, RunContext
from ...pairs.pair import Pair
from .translation import TranslatedDrafter

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath

TAIL = 8  # ids before the draft that are encoded with it: the tokenizer sees where it begins


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
        own = torch.tensor(proposed)
        if not found:
            return None, own
        return Draft.certain(found, self._run), own

    def _encoded(self, ids: Sequence[int], proposed: Sequence[int]) -> list[int]:
        """The target's ids for what the draft proposes to follow the committed `ids`."""
        shared = self._shared
        text = b"".join(shared.draft.texts.get(i, b"") for i in proposed)
        found = self._aligned(ids[-TAIL:], text)
        if (
            found is None
        ):  # the text before would be cut into other tokens, or a character is not whole
            found = shared.target.spell(text)
        end = shared.to_target.get(proposed[-1]) if proposed[-1] not in shared.draft.texts else None
        return [i for i in found if i < self._run.vocab] + ([] if end is None else [end])

    def _aligned(self, tail: Sequence[int], text: bytes) -> list[int] | None:
        """The ids of `text` after `tail`; None if both together are not `tail` and some more."""
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
