"""Conversion of a watched server's steps to rounds, with the drafts that the server
reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ...core.events import UNKNOWN_ID, Outcome, Round, Token
from ...core.lanes import BASELINE, Lane


class StreamedToken(NamedTuple):
    """A token of a stream. at: seconds from the request to its arrival."""

    id: int
    text: str
    at: float


class Step(NamedTuple):
    """One step of an engine: its tokens, and the numbers of drafted and accepted tokens; None if
    the server does not give them. At the end of the text there may be fewer tokens than accepted +
    1."""

    tokens: Sequence[StreamedToken]
    drafted: int | None = None
    accepted: int | None = None


class Counts(NamedTuple):
    """The server's counts of each verify step, in order."""

    drafted: Sequence[int]
    accepted: Sequence[int]


def rounds_of(steps: Iterable[Step], lane: Lane) -> Iterator[Round]:
    """The rounds of a lane's steps, as they come; in the baseline, one for each token. The clock
    begins when the first tokens arrive."""
    if lane == BASELINE:
        steps = (Step([token]) for step in steps for token in step.tokens)
    began: float | None = None  # seconds after the request
    before = 0.0
    for index, step in enumerate(steps):
        at = step.tokens[-1].at
        if began is None:
            began = at
        clock = max(before, at - began)
        drafted, last = _tokens(step, lane)
        yield Round(
            lane=lane,
            index=index,
            drafted=drafted,
            last=last,
            draft_seconds=0.0,
            verify_seconds=0.0,
            overhead_seconds=clock - before,
            clock=clock,
            wall=clock + began,
        )
        before = clock


def _tokens(step: Step, lane: Lane) -> tuple[list[Token], Token | None]:
    """The drafted tokens of a step and its last emitted one, or None if the text ended before
    that."""
    tokens, drafted, accepted = step
    if lane == BASELINE:
        return [], _token(tokens[0], "bonus")
    if drafted is None or accepted is None:
        draft_tokens = [_token(token, "accepted") for token in tokens[:-1]]
        return draft_tokens, _token(tokens[-1], "untold")
    draft_tokens = [_token(token, "accepted") for token in tokens[:accepted]]
    last = None
    if len(tokens) > accepted:
        outcome: Outcome = "bonus"
        if accepted < drafted:
            outcome = "corrected"
            draft_tokens.append(Token(UNKNOWN_ID, "", "rejected"))
        last = _token(tokens[accepted], outcome)
    ignored = Token(UNKNOWN_ID, "", "ignored")
    draft_tokens += [ignored] * (drafted - len(draft_tokens))
    return draft_tokens, last


def _token(token: StreamedToken, outcome: Outcome) -> Token:
    return Token(token.id, token.text, outcome)


def reconciled(chunks: Sequence[Step], counts: Counts) -> list[Step] | None:
    """The steps of a stream whose counts came at its end; None if the counts do not add up to the
    text, or fit several of its chunks.

    chunks: in order; the first has the one token of the prefill. Each verify step emits its
    accepted tokens and one more; only the last step may be cut off. Late chunks may hold several
    steps.
    """
    if not _are_possible(counts):
        return None
    sizes = [accepted + 1 for accepted in counts.accepted]
    verified_chunks = chunks[1:]
    tokens: list[StreamedToken] = []
    for chunk in verified_chunks:
        tokens += chunk.tokens
    all_are_counted = bool(sizes) and sum(sizes[:-1]) < len(tokens) <= sum(sizes)
    if all_are_counted:
        steps = _cut(tokens, counts)
    else:
        # Steps without drafts, which are frequent with n-grams, are not counted.
        lengths = [len(chunk.tokens) for chunk in verified_chunks]
        matches = _only_match(lengths, sizes)
        if matches is None:
            return None
        steps = _with_counts(verified_chunks, matches, counts)
    prefill = Step(chunks[0].tokens, 0, 0)
    return [prefill, *steps]


def _with_counts(
    chunks: Sequence[Step], matches: Sequence[int | None], counts: Counts
) -> list[Step]:
    """The steps of chunks. matches: as `_only_match` returns them."""
    steps = []
    for chunk, index in zip(chunks, matches, strict=True):
        drafted = 0
        accepted = 0
        if index is not None:
            drafted = counts.drafted[index]
            accepted = counts.accepted[index]
        steps.append(Step(chunk.tokens, drafted, accepted))
    return steps


def _are_possible(counts: Counts) -> bool:
    """Whether no step accepted more than it drafted."""
    if len(counts.drafted) != len(counts.accepted):
        return False
    pairs = zip(counts.accepted, counts.drafted, strict=True)
    return all(0 <= accepted <= drafted for accepted, drafted in pairs)


def _cut(tokens: Sequence[StreamedToken], counts: Counts) -> list[Step]:
    """Cut consecutive tokens into steps of accepted + 1 tokens each."""
    steps = []
    begin = 0
    for drafted, accepted in zip(counts.drafted, counts.accepted, strict=True):
        end = begin + accepted + 1
        steps.append(Step(tokens[begin:end], drafted, accepted))
        begin = end
    return steps


def _only_match(lengths: Sequence[int], sizes: Sequence[int]) -> list[int | None] | None:
    """The index in `sizes` of each chunk's step, or None for a step without drafts.

    lengths: tokens of the chunks; the last one may be shorter than its step. Returns None if the
    chunks match the steps in no way, or in more than one.
    """
    last = len(lengths) - 1
    # From the last chunk back: by the number of steps before a chunk, the ways to match it and all
    # later chunks. Each way is a chain (index, the way of the later chunks). Two of them are enough
    # to know that there are several.
    ways: dict[int, list[Any]] = {len(sizes): [()]}
    for chunk in range(last, -1, -1):
        ways_before: dict[int, list[Any]] = {}
        length = lengths[chunk]
        for step in range(len(sizes) + 1):
            matched: list[Any] = []
            if length == 1:
                matched += [(None, way) for way in ways.get(step, [])]
            for way in ways.get(step + 1, []):
                size = sizes[step]
                is_cut_off = chunk == last and length < size
                if length == size or is_cut_off:
                    matched.append((step, way))
            ways_before[step] = matched[:2]
        ways = ways_before
    whole_ways = ways.get(0, [])
    if len(whole_ways) != 1:
        return None
    matches = []
    way = whole_ways[0]
    while way:
        index, way = way
        matches.append(index)
    return matches
