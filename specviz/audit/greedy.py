"""Judge greedy texts: is each token the first choice at its position, and where the texts of two
servers diverge, is it a tie within rounding or a fault?

The log-probabilities come from reading the text before a token, without drafts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
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
    return tuple(takewhile(lambda token_id: token_id != UNKNOWN_ID, ids))


def requests_for(texts: int, tokens: int) -> int:
    """The number of requests that `check_own` sends for `texts` texts."""
    return texts * -(-tokens // BLOCK)


def check_own(model: AuditedModel, texts: Sequence[GreedyText], rounding: float) -> Greedy:
    """Compare each token of greedy texts with the list at its position. Raises `ServerError`, and
    `PairError` if the server lists nothing."""
    places: list[Mismatch] = []
    for number, text in enumerate(texts, 1):
        for index, listed in _listed_along(model, text):
            token_id = text.ids[index]
            best = max(listed, key=lambda other: listed[other])
            if token_id == best:
                continue
            # An unlisted token is further behind than the last listed one.
            logprob = listed.get(token_id, min(listed.values()))
            behind = listed[best] - logprob
            mismatch = Mismatch(
                prompt=number,
                index=index,
                ours=model.text_of(token_id),
                expected=model.text_of(best),
                behind=behind,
                verdict=judge(behind, rounding, is_listed=token_id in listed),
            )
            places.append(mismatch)
    return Greedy(
        against="its own log-probabilities",
        prompts=len(texts),
        tokens=sum(len(text.ids) for text in texts),
        rounding=rounding,
        places=tuple(places),
    )


def _listed_along(model: AuditedModel, text: GreedyText) -> Iterator[tuple[int, dict[int, float]]]:
    """Yield each position of a text with the list of its likeliest tokens."""
    for begin in range(0, len(text.ids), BLOCK):
        end = min(begin + BLOCK, len(text.ids))
        indices = range(begin, end)
        prefixes = [text.prefix(index) for index in indices]
        listings = model.listings(prefixes, LISTED)
        yield from zip(indices, listings, strict=True)


def judge(behind: float, rounding: float, *, is_listed: bool = True) -> Judgement:
    """A tie within rounding, a fault, or neither for certain."""
    if behind > FAULT:
        return "fault"
    if is_listed and behind <= rounding:
        return "tie"
    return "cannot be told"


def measured_rounding(
    server: AuditedModel, baseline: AuditedModel, prefixes: Sequence[Ids]
) -> float:
    """The largest gap of candidates in a tie, in nats: twice the largest difference of both
    servers' lists after the same texts, and no more than `ROUNDING`. Raises `ServerError`."""
    largest = 0.0
    lists = server.listings(prefixes, LISTED)
    baseline_lists = baseline.listings(prefixes, LISTED)
    for listed, baseline_listed in zip(lists, baseline_lists, strict=True):
        for token_id in listed.keys() & baseline_listed.keys():
            difference = abs(listed[token_id] - baseline_listed[token_id])
            largest = max(largest, difference)
    return min(max(2 * largest, MIN_ROUNDING), ROUNDING)


def compare(
    texts: Sequence[GreedyText],
    baseline_texts: Sequence[GreedyText],
    judge_of: AuditedModel | None,
    rounding: float,
) -> Greedy:
    """Compare texts of both servers after the same prompts. judge_of: the server whose lists
    decide; None if no server has lists. Raises `ServerError`."""
    places: list[Mismatch] = []
    tokens = 0
    pairs = zip(texts, baseline_texts, strict=True)
    for number, (text, baseline_text) in enumerate(pairs, 1):
        index = parting(text.ids, baseline_text.ids)
        if index is None:
            tokens += min(len(text.ids), len(baseline_text.ids))
            continue
        tokens += index + 1
        baseline_id = baseline_text.ids[index]
        place = _parting_place(number, index, text, baseline_id, judge_of, rounding)
        places.append(place)
    return Greedy(
        against="the baseline's texts",
        prompts=len(texts),
        tokens=tokens,
        rounding=rounding,
        places=tuple(places),
    )


def _parting_place(
    number: int,
    index: int,
    text: GreedyText,
    baseline_id: int,
    judge_of: AuditedModel | None,
    rounding: float,
) -> Mismatch:
    """Judge the position at which the text of a prompt diverges from the baseline's."""
    token_id = text.ids[index]
    if judge_of is None:
        return Mismatch(
            prompt=number,
            index=index,
            ours=str(token_id),
            expected=str(baseline_id),
            behind=None,
            verdict="cannot be told",
        )
    prefix = text.prefix(index)
    listed = judge_of.listings([prefix], LISTED)[0]
    least = min(listed.values())
    logprob = listed.get(token_id, least)
    baseline_logprob = listed.get(baseline_id, least)
    apart = abs(logprob - baseline_logprob)
    are_listed = token_id in listed and baseline_id in listed
    return Mismatch(
        prompt=number,
        index=index,
        ours=judge_of.text_of(token_id),
        expected=judge_of.text_of(baseline_id),
        behind=apart,
        verdict=judge(apart, rounding, is_listed=are_listed),
    )


def parting(ids: Ids, baseline_ids: Ids) -> int | None:
    """The first index at which two texts differ; None if one begins with the other."""
    for index, (token_id, baseline_id) in enumerate(zip(ids, baseline_ids, strict=False)):
        if token_id != baseline_id:
            return index
    return None
