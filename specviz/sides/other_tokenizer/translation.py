"""What drafters need whose model has another tokenizer than the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from ...core.cost import pass_cost
from ...core.drafting import Drafter
from ...core.engine import host_ids, make_engine, prefill
from ...core.types import Draft, RunContext
from ...pairs.pair import Pair, context_length
from ...pairs.shared_tokens import SharedTokens

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath, Engine


class DraftText:
    """The committed text in the draft's tokens: `ids`, which is never empty."""

    def __init__(self, pair: Pair, shared: SharedTokens, prompt: Sequence[int]) -> None:
        self._shared = shared
        self._read = len(prompt)  # ids of the target that are translated
        text = pair.tokenizer.decode(list(prompt), skip_special_tokens=True)
        ids = pair.draft_tokenizer(text)["input_ids"] if text else []
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
        shared = self._shared = pair.shared
        self._pair, self._run = pair, run
        self.engine: Engine = make_engine(pair.draft, pair.draft_vocab)
        self.form = self.engine.form
        self._limit = context_length(pair.draft)
        self._text = DraftText(pair, shared, [])
        self._proposed: Tensor | None = None

    def prefill(self, ids: Sequence[int]) -> float:
        self._text = DraftText(self._pair, self._shared, ids)
        read = self._text.ids[:-1]
        if self._limit is not None and len(read) > self._limit:
            return 0.0
        return prefill(self.engine, read)

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        text, proposed = self._text.ids, [] if self._proposed is None else self._proposed.tolist()
        known = len(text)
        self._text.extend(ids, proposed)
        self._proposed = None
        if self._limit is not None:
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
        return pass_cost(self._pair.draft, self.engine.form)

    def _drafted(self, ids: Sequence[int], feed: Tensor, count: int) -> tuple[Draft | None, Tensor]:
        """Up to `count` tokens to follow the committed `ids`, after feeding `feed`, and the ids of
        the draft that were drafted for them, int64 [m]."""
        raise NotImplementedError
