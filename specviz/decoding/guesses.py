"""What a draft would have got right of a text that a model wrote which cannot be loaded."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import torch

from ..engines.choose import make_engine
from ..environment import BUILTIN
from ..errors import PairError, PromptError
from ..inspect.guesses import Guess, Guesses
from ..models.pair import Pair, context_length
from .detokenize import Pieces, TextStream
from .header import model_name
from .sampling import greedy_ids

FED = 32  # places of the text per pass; after each the caller may stop
MOST_TOKENS = 2048  # of a text


def guesses(
    draft: Pair, text: str, prompt: str = "", *, continues: bool = False
) -> Generator[int, None, Guesses]:
    """The draft's first choice at each place of `text`; yields how many places are done.

    draft: a pair whose target is the model that guesses (see `draft_of`). The text is cut by its
    tokenizer, whatever wrote it; what is longer than `MOST_TOKENS` or its context is left out.
    prompt: what the text answers, or, if it `continues`, what stands directly before it. Raises
    `PromptError` if there is nothing to guess.
    """
    before = _context(draft, prompt, continues)
    whole = [i for i in draft.text_ids(text) if i < draft.vocab]
    stream, pieces = TextStream(draft.tokenizer, before), Pieces(draft.tokenizer)
    start = 0 if before else 1  # nothing stands before the first token
    before = before or whole[:1]
    limit = context_length(draft.target) or MOST_TOKENS
    ids = whole[start:][: max(0, min(MOST_TOKENS, limit - len(before)))]
    if not ids:
        raise PromptError(
            "there is nothing to guess: give a text of a few words, and a prompt that leaves room "
            f"for it in the draft's context of {limit:,} tokens."
        )
    first = "".join(map(stream.push, whole[:start]))
    places: list[Guess] = []
    for written, chosen, q in _choices(draft, before, ids):
        for wrote, own, (q_guess, q_text) in zip(written, chosen, q, strict=True):
            places.append(Guess(stream.push(wrote), pieces[own], own == wrote, q_guess, q_text))
        yield len(places)
    places[-1] = places[-1]._replace(text=places[-1].text + stream.flush())
    return Guesses(draft.name, first, tuple(places), len(whole) - start - len(ids))


def _choices(
    draft: Pair, before: Sequence[int], ids: Sequence[int]
) -> Iterator[tuple[Sequence[int], list[int], list[list[float]]]]:
    """For `FED` places at a time: the written ids, the draft's first choices, and its probability
    of either."""
    engine = make_engine(draft.target, draft.vocab)
    unread = list(before)
    for begin in range(0, len(ids), FED):
        written = ids[begin : begin + FED]
        unread += written[:-1]
        with torch.inference_mode():
            rows = engine.forward(torch.tensor(unread, device=engine.device), keep=len(written))
            chosen = greedy_ids(rows)
            both = torch.stack([chosen, torch.tensor(written, device=chosen.device)], -1)
            q = torch.softmax(rows, -1).gather(1, both)
        yield written, chosen.tolist(), q.tolist()
        unread = [written[-1]]


def draft_of(pair: Pair) -> Pair:
    """The draft model of a pair alone, as the target of a pair without a draft. Raises
    `PairError` if it has none."""
    if pair.draft is None:
        raise PairError("this pair has no draft model that could guess: choose a pair with one.")
    tokenizer = pair.draft_tokenizer or pair.tokenizer
    name = "the built-in draft" if pair.name == BUILTIN else model_name(pair.draft)
    return Pair(target=pair.draft, draft=None, tokenizer=tokenizer, name=name)


def _context(draft: Pair, prompt: str, continues: bool) -> list[int]:
    """What the draft reads before the text: ids, perhaps none."""
    if not prompt:
        return [i for i in _opening(draft.tokenizer) if i < draft.vocab]
    if continues:
        return draft.encode(prompt, chat="off")
    return draft.encode(prompt if draft.is_chat else f"{prompt.rstrip()}\n\n")


def _opening(tokenizer: Any) -> list[int]:
    """The ids that a tokenizer puts before every text."""
    return list(tokenizer("")["input_ids"])
