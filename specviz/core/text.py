"""Decode tokens to text, exactly for any tokenizer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

UNFINISHED = "\ufffd"  # what tokenizers print for bytes that do not yet form a character


class TextStream:
    """Turns ids into text one at a time, so that the concatenated pieces are the decoded text.

    A token that leaves a character unfinished has the text ""; the token that completes the
    character has all of it. `flush` gives the rest when a text ends inside a character.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        # Decoding looks back to the start of the last finished piece and no further: tokenizers
        # that write a space before a word need that much context, and it stays short.
        self._ids = list(prompt_ids)
        whole = self._decode(self._ids)
        self._shown = whole.rstrip(UNFINISHED)
        # Pieces are cut off between characters: else some decoders corrupt a run of bytes.
        self._settled = len(self._ids) if self._shown == whole else 0

    def copy(self) -> TextStream:
        """Make an independent stream at the same position, for tokens that may be rejected."""
        twin = copy.copy(self)
        twin._ids = list(self._ids)
        return twin

    def push(self, token_id: int) -> str:
        """Take a token; return the text that it adds."""
        self._ids.append(token_id)
        whole = self._decode(self._ids)
        if whole.endswith(UNFINISHED):
            return ""
        added = whole[len(self._shown) :]
        self._ids = self._ids[self._settled :]
        self._settled = len(self._ids)
        self._shown = self._decode(self._ids)
        return added

    def flush(self) -> str:
        """Return the text of tokens whose character is still incomplete."""
        added = self._decode(self._ids)[len(self._shown) :]
        self._shown += added
        return added

    def _decode(self, ids: list[int]) -> str:
        return _decoded(self._tokenizer, ids)


class Texts(NamedTuple):
    """The texts that a round's tokens add: each emitted one, and each other draft."""

    emitted: list[str]
    not_emitted: list[str]


def texts_of(stream: TextStream, drafted: list[int], emitted: list[int], kept: int) -> Texts:
    """Advance `stream` over the emitted ids, and a copy of it over the drafts not emitted.

    kept: how many of the drafted ids are the first ones of the emitted.
    """
    texts = [stream.push(token_id) for token_id in emitted[:kept]]
    not_emitted: list[str] = []
    if drafted[kept:]:
        fork = stream.copy()
        not_emitted = [fork.push(token_id) for token_id in drafted[kept:]]
        not_emitted[-1] += fork.flush()
    texts += [stream.push(token_id) for token_id in emitted[kept:]]
    return Texts(texts, not_emitted)


def _decoded(tokenizer: Tokenizer, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


class Pieces(dict[int, str]):
    """The texts of single tokens, for lists of alternatives: a mapping by id, decoded on demand."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        # Many tokenizers drop the leading space of a word decoded alone, but not after another
        # token.
        self._anchor = tokenizer.encode("a", add_special_tokens=False)[-1:]
        self._skip = len(tokenizer.decode(self._anchor))

    def __missing__(self, token_id: int) -> str:
        self[token_id] = _decoded(self._tokenizer, [*self._anchor, token_id])[self._skip :]
        return self[token_id]


class StopTexts:
    """Finds where a text first holds one of several stop strings, token by token."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._tail = ""  # the end of the text so far, where a stop string may have begun

    def completed_at(self, added: Sequence[str]) -> int | None:
        """Take further tokens' texts; return the index where a stop string is complete, or None."""
        if not self._stops:
            return None
        reach = max(map(len, self._stops)) - 1
        for index, text in enumerate(added):
            window = self._tail + text
            if any(stop in window for stop in self._stops):
                return index
            self._tail = window[max(0, len(window) - reach) :]
        return None
