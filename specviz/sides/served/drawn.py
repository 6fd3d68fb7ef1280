"""Exact decoding from single draws of the target, where its whole distribution is not known.

Of each place only p of the draft and a few tokens drawn from p are known, each with its own p. That
is enough: a draft is judged by p / q, and norm(max(0, p - q)) is drawn from by rejection, with
draws from p as proposals. How likely a draft was to be kept (beta) and the residual itself remain
unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, repeat

import torch

from ...core.numpy_path import NumpyPath
from ...core.types import Draft, Floats, Judged, RunContext, Verdict
from .interface import Drawn, Wanted
from .target import RemoteEngine

MOST_TRIES = 2**16
"""Proposals after which rounding is held to have left no difference between p and q."""

MORE = (4, 16, 64)  # further draws per request: the expected number is below 1 for each place


def decide_by_draws(
    p: Sequence[float],
    q: Floats,
    drafted: Sequence[int],
    u: Sequence[float],
    draws: Callable[[int], Iterator[Drawn]],
    uniform: Callable[[], float],
) -> tuple[int, Drawn]:
    """The token rule of `verdict.decided` without the target's distributions: how many drafts are
    kept, and the token that follows them.

    p: the target's probability of each of the n drafts at its place. q: fp32 [n, vocab], the rows
    that they were drawn from. u: [n] draws in [0, 1). draws: independent draws from p at a place
    from 0 to n, without end. uniform: further draws in [0, 1).

    A draft is kept while u < p / q. After a refusal, y is drawn from p until one is kept, each with
    probability max(0, 1 - q(y) / p(y)): it then follows norm(max(0, p - q)) (von Neumann's
    rejection with p as the proposal, since p times this probability is max(0, p - q)). With all
    drafts kept, the next token is y. The text follows p exactly (Leviathan et al. 2022, arXiv
    2211.17192, theorem 1). A place needs one draw in expectation: a refusal has probability
    1 - beta, and then 1 / (1 - beta) are needed. Where rounding leaves nothing of p above q, which
    `MOST_TRIES` refusals are taken for, y follows p, as in `views.residual`.
    """
    accepted = 0
    for place, (token_id, chance) in enumerate(zip(drafted, u, strict=True)):
        if not chance * q.item(place, token_id) < p[place]:
            break
        accepted += 1
    proposals = draws(accepted)
    if accepted == len(drafted):
        return accepted, next(proposals)
    for y in islice(proposals, MOST_TRIES):
        if uniform() * y.p < y.p - q.item(accepted, y.id):
            return accepted, y
    return accepted, next(proposals)


class DrawnPath(NumpyPath):
    """A `DecodingPath` for a target on a server that draws.

    The server draws with seeds from the run's own numbers, so a seeded run repeats as far as the
    server repeats its draws; the text is another than the one that the same seed gives where whole
    distributions are listed.
    """

    def __init__(self, engine: RemoteEngine, run: RunContext) -> None:
        super().__init__(engine, run)
        self._server = engine

    def judge(self, ids: Sequence[int], draft: Draft | None) -> Judged:
        drafted = [] if draft is None else draft.ids.tolist()
        self._server.append([ids[-1], *drafted])
        lengths = range(len(ids), len(ids) + len(drafted) + 1)
        first = [one for (one,) in self._server.drawn(lengths, self._wanted(drafted))]
        u = self._source.numbers(len(drafted))
        p = [place.asked[token_id] for place, token_id in zip(first, drafted, strict=False)]
        known = torch.zeros(len(first), self._run.vocab)  # 0 where nothing is known
        rows = known.numpy()
        accepted, last = decide_by_draws(
            p,
            draft.q.numpy() if draft else rows[:0],
            drafted,
            u.tolist(),
            lambda place: self._proposals(first[place], len(ids) + place),
            lambda: float(self._source.numbers(1)[0]),
        )
        for place, token_id in enumerate(drafted):
            rows[place, token_id] = p[place]
        rows[accepted, last.id] = last.p
        found = Verdict.on(len(drafted), accepted, last.id)
        return Judged(draft, drafted, known, known, u, found, whole=False)

    def _proposals(self, first: Drawn, length: int) -> Iterator[Drawn]:
        yield first
        for count in chain(MORE, repeat(MORE[-1])):
            yield from self._server.drawn(range(length, length + 1), self._wanted((), count))[0]

    def _wanted(self, asked: Sequence[int], count: int = 1) -> Wanted:
        return Wanted(asked, self._run.settings, int(self._source.numbers(1)[0] * 2**53), count)
