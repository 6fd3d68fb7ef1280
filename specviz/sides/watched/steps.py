"""From the steps of a watched server to rounds: what was drafted, as far as the server tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from ...core.events import UNKNOWN_ID, Outcome, Round, Token
from ...lanes import BASELINE, Lane


class Word(NamedTuple):
    """A token of a stream. at: seconds from the request to its arrival."""

    id: int
    text: str
    at: float


class Step(NamedTuple):
    """One step of an engine: its tokens, and how many it drafted and accepted; None if the server
    does not tell. Where the text ended, there are fewer tokens than accepted + 1."""

    words: Sequence[Word]
    drafted: int | None = None
    accepted: int | None = None


class Counts(NamedTuple):
    """What a server tells of each verify step, in order."""

    drafted: Sequence[int]
    accepted: Sequence[int]


def rounds_of(steps: Iterable[Step], lane: Lane) -> Iterator[Round]:
    """The rounds of a lane's steps, as they come; in the baseline, one for each token. The clock
    begins when the first tokens come."""
    if lane == BASELINE:
        steps = (Step([word]) for step in steps for word in step.words)
    begun: float | None = None  # seconds after the request
    before = 0.0
    for index, step in enumerate(steps):
        at = step.words[-1].at
        begun = at if begun is None else begun
        clock = max(before, at - begun)
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
            wall=clock + begun,
        )
        before = clock


def _tokens(step: Step, lane: Lane) -> tuple[list[Token], Token | None]:
    """The drafted tokens of a step, and the last that it emitted."""
    words, drafted, accepted = step
    if lane == BASELINE:
        return [], _token(words[0], "bonus")
    if drafted is None or accepted is None:
        return [_token(word, "accepted") for word in words[:-1]], _token(words[-1], "untold")
    kept = [_token(word, "accepted") for word in words[:accepted]]
    is_cut = len(words) <= accepted
    rejected = not is_cut and accepted < drafted
    rest: list[Outcome] = ["ignored"] * (drafted - len(kept))
    rest[: int(rejected)] = ["rejected"] * rejected
    own: Outcome = "corrected" if rejected else "bonus"
    unseen = [Token(UNKNOWN_ID, "", outcome) for outcome in rest]
    return [*kept, *unseen], None if is_cut else _token(words[accepted], own)


def _token(word: Word, outcome: Outcome) -> Token:
    return Token(word.id, word.text, outcome)


def reconciled(chunks: Sequence[Step], counts: Counts) -> list[Step] | None:
    """The steps of a stream whose counts were told at its end; None if the counts do not add up to
    the text, or if they could be those of several of its chunks.

    chunks: as they came, the first with the one token that reading the prompt gave. Each verify
    step emits what it accepted and one token more; only the last may have been cut off. Chunks that
    came late may hold several steps.
    """
    sizes = [accepted + 1 for accepted in counts.accepted]
    if len(counts.drafted) != len(sizes) or any(
        not 0 <= size - 1 <= drafted for size, drafted in zip(sizes, counts.drafted, strict=True)
    ):
        return None
    first, words = chunks[0], [word for chunk in chunks[1:] for word in chunk.words]
    if sizes and sum(sizes[:-1]) < len(words) <= sum(sizes):
        ends = list(accumulate(sizes))
        parts = [words[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        told = [Step(*one) for one in zip(parts, counts.drafted, counts.accepted, strict=True)]
    else:
        # Steps without drafts, of which n-grams have many, are not counted.
        places = _only_places([len(chunk.words) for chunk in chunks[1:]], sizes)
        if places is None:
            return None
        told = [
            Step(chunk.words, 0, 0)
            if place is None
            else Step(chunk.words, counts.drafted[place], counts.accepted[place])
            for chunk, place in zip(chunks[1:], places, strict=True)
        ]
    return [Step(first.words, 0, 0), *told]


def _only_places(lengths: Sequence[int], sizes: Sequence[int]) -> list[int | None] | None:
    """Which of `sizes` each chunk is, None for a step without drafts; None if there is no way or
    more than one. The last chunk may be shorter than its size."""
    last = len(lengths) - 1
    # By the number of steps before a chunk, the ways on from it, each as (place, the way after it):
    # two are enough to know that there is more than one.
    ways: dict[int, list[Any]] = {len(sizes): [()]}
    for chunk in range(last, -1, -1):
        before: dict[int, list[Any]] = {}
        for step in range(len(sizes) + 1):
            plain = ways.get(step, []) if lengths[chunk] == 1 else []
            size = sizes[step] if step < len(sizes) else 0
            fits = lengths[chunk] == size or (chunk == last and lengths[chunk] < size)
            drafted = ways.get(step + 1, []) if fits else []
            before[step] = [*((None, way) for way in plain), *((step, way) for way in drafted)][:2]
        ways = before
    found = ways.get(0, [])
    if len(found) != 1:
        return None
    places, way = [], found[0]
    while way:
        place, way = way
        places.append(place)
    return places
