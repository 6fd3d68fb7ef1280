"""Judge greedy texts: is each token the first choice at its position, and where the texts of two
servers part, is it a tie within rounding or a fault?

The log-probabilities come from reading the text before a token, without drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..core.events import UNKNOWN_ID
from .asking import AuditedModel, Ids
from .report import Greedy, Mismatch

LISTED = 20  # log-probabilities requested at each position, as many as vLLM lists
BLOCK = 16  # positions in a request
ROUNDING = 0.15  # nats: passes of 16-bit weights over one and over many tokens differ by this
FAULT = 1.0  # nats that no rounding explains
MIN_ROUNDING = 1e-3  # nats, in fp32

Judgement = Literal["tie", "fault", "cannot be told"]


@dataclass(frozen=True, slots=True)
class GreedyText:
    """A prompt and the ids of the greedy text after it."""

    prompt: Ids
    ids: Ids

    def prefix(self, index: int) -> Ids:
        """Everything before a token of the text."""
        return self.prompt + self.ids[:index]


def known_ids(ids: Sequence[int]) -> Ids:
    """The ids before the first one that the server did not report."""
    ids = tuple(ids)
    return ids[: ids.index(UNKNOWN_ID)] if UNKNOWN_ID in ids else ids


def requests_for(texts: int, tokens: int) -> int:
    """The number of requests that `check_own` sends for `texts` texts."""
    return texts * -(-tokens // BLOCK)


def check_own(model: AuditedModel, texts: Sequence[GreedyText], rounding: float) -> Greedy:
    """Compare each token of greedy texts with the list at its position. Raises `ServerError`, and
    `PairError` if the server lists nothing."""
    places: list[Mismatch] = []
    tokens = 0
    for number, text in enumerate(texts, 1):
        for begin in range(0, len(text.ids), BLOCK):
            indices = range(begin, min(begin + BLOCK, len(text.ids)))
            lists = model.listings([text.prefix(index) for index in indices], LISTED)
            for index, listed in zip(indices, lists, strict=True):
                tokens += 1
                mismatch = _judged(model, number, index, text.ids[index], listed, rounding)
                if mismatch is not None:
                    places.append(mismatch)
    return Greedy("its own log-probabilities", len(texts), tokens, rounding, tuple(places))


def _judged(
    model: AuditedModel,
    number: int,
    index: int,
    token_id: int,
    listed: dict[int, float],
    rounding: float,
) -> Mismatch | None:
    """The judged position if its token is not the first choice; None if it is."""
    best = max(listed, key=lambda other: listed[other])
    if token_id == best:
        return None
    # An unlisted token is further behind than the last listed one.
    behind = listed[best] - listed.get(token_id, min(listed.values()))
    judgement = judge(behind, rounding, is_listed=token_id in listed)
    return Mismatch(number, index, model.text_of(token_id), model.text_of(best), behind, judgement)


def judge(behind: float, rounding: float, *, is_listed: bool = True) -> Judgement:
    """A tie within rounding, a fault, or neither for certain."""
    if behind > FAULT:
        return "fault"
    return "tie" if is_listed and behind <= rounding else "cannot be told"


def measured_rounding(ours: AuditedModel, theirs: AuditedModel, prefixes: Sequence[Ids]) -> float:
    """The largest gap of candidates in a tie, in nats: twice the largest difference of both
    servers' lists after the same texts, and no more than `ROUNDING`. Raises `ServerError`."""
    seen = 0.0
    our_lists = ours.listings(prefixes, LISTED)
    their_lists = theirs.listings(prefixes, LISTED)
    for our_list, their_list in zip(our_lists, their_lists, strict=True):
        for token_id in our_list.keys() & their_list.keys():
            seen = max(seen, abs(our_list[token_id] - their_list[token_id]))
    return min(max(2 * seen, MIN_ROUNDING), ROUNDING)


def compare(
    ours: Sequence[GreedyText],
    theirs: Sequence[GreedyText],
    judge_of: AuditedModel | None,
    rounding: float,
) -> Greedy:
    """Compare texts of both servers after the same prompts. judge_of: the server whose lists
    decide; None if no server has lists. Raises `ServerError`."""
    places: list[Mismatch] = []
    tokens = 0
    for number, (our_text, their_text) in enumerate(zip(ours, theirs, strict=True), 1):
        index = parting(our_text.ids, their_text.ids)
        if index is None:
            tokens += min(len(our_text.ids), len(their_text.ids))
            continue
        tokens += index + 1
        our_id = our_text.ids[index]
        their_id = their_text.ids[index]
        if judge_of is None:
            places.append(
                Mismatch(number, index, str(our_id), str(their_id), None, "cannot be told")
            )
            continue
        listed = judge_of.listings([our_text.prefix(index)], LISTED)[0]
        least = min(listed.values())
        apart = abs(listed.get(our_id, least) - listed.get(their_id, least))
        are_listed = our_id in listed and their_id in listed
        places.append(
            Mismatch(
                prompt=number,
                index=index,
                ours=judge_of.text_of(our_id),
                expected=judge_of.text_of(their_id),
                behind=apart,
                verdict=judge(apart, rounding, is_listed=are_listed),
            )
        )
    return Greedy("the baseline's texts", len(ours), tokens, rounding, tuple(places))


def parting(ours: Ids, theirs: Ids) -> int | None:
    """The first index at which two texts differ; None if they do not, as far as both go."""
    for index, (our_id, their_id) in enumerate(zip(ours, theirs, strict=False)):
        if our_id != their_id:
            return index
    return None
