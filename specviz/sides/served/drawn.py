"""Exact decoding from single draws of the target, where its whole distribution is unknown.

At each position only p of the draft and a few tokens drawn from p are known, each with its own p.
That is enough: a draft is judged by p / q, and norm(max(0, p - q)) is sampled by rejection, with
draws from p as proposals. The probability that a draft is kept (beta) and the residual itself
remain unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING

import torch

from ...core.numpy_path import NumpyPath
from ...core.types import Draft, Floats, JudgedRound, RunContext, Verdict
from .interface import Drawn, Wanted

if TYPE_CHECKING:
    from .target import RemoteEngine

MAX_TRIES = 2**16
"""The limit of refused proposals: beyond it, p and q count as equal but for rounding."""

MORE = (4, 16, 64)  # further draws per request: the expected number is below 1 for each position


def decide_by_draws(
    p: Sequence[float],
    q: Floats,
    drafted: Sequence[int],
    u: Sequence[float],
    draws: Callable[[int], Iterator[Drawn]],
    uniform: Callable[[], float],
) -> tuple[int, Drawn]:
    """Decide as `verdict.decide_in_numpy` does, but without the target's distributions. Returns the
    number of kept drafts, and the next token.

    p: the target's probability of each of the n drafts at its position. q: fp32 [n, vocab], the
    rows that they were drawn from. u: [n] draws in [0, 1). draws: endless independent draws from p
    at a position from 0 to n. uniform: further draws in [0, 1).

    A draft is kept while u < p / q. After a refusal, y is drawn from p until one is kept, each
    with probability max(0, 1 - q(y) / p(y)): it then follows norm(max(0, p - q)) (von Neumann's
    rejection with p as the proposal, since p times this probability is max(0, p - q)). With all
    drafts kept, the next token is y. The text follows p exactly (Leviathan et al. 2022, arXiv
    2211.17192, theorem 1). A position needs one draw in expectation: a refusal has probability 1 -
    beta, and then 1 / (1 - beta) are needed. After `MAX_TRIES` refusals rounding has left nothing
    of p above q; then y follows p, as in `tensor_draws.residual`.
    """
    accepted = 0
    for position, (token_id, draw) in enumerate(zip(drafted, u, strict=True)):
        q_drafted = q.item(position, token_id)
        if not draw * q_drafted < p[position]:
            break
        accepted += 1
    proposals = draws(accepted)
    if accepted == len(drafted):
        return accepted, next(proposals)
    for y in islice(proposals, MAX_TRIES):
        if uniform() * y.p < y.p - q.item(accepted, y.id):
            return accepted, y
    return accepted, next(proposals)


class DrawnPath(NumpyPath):
    """A `DecodingPath` for a target on a server that draws.

    The server draws with seeds from the run's own random numbers, so a seeded run repeats as far
    as the server repeats its draws. The text differs from the one that the same seed gives with
    whole distributions.
    """

    def __init__(self, engine: RemoteEngine, run: RunContext) -> None:
        super().__init__(engine, run)
        self._server = engine

    def judge(self, ids: Sequence[int], draft: Draft | None) -> JudgedRound:
        drafted: list[int] = []
        q = torch.zeros(0, self._run.vocab)
        if draft is not None:
            drafted = draft.ids.tolist()
            q = draft.q
        first_draws = self._first_draws(ids, drafted)
        u = self._draws.numbers(len(drafted))
        known_p = torch.zeros(len(drafted) + 1, self._run.vocab)  # 0 where nothing is known
        p_drafted = []
        for position, token_id in enumerate(drafted):
            p = first_draws[position].asked[token_id]
            p_drafted.append(p)
            known_p[position, token_id] = p
        accepted, last = decide_by_draws(
            p_drafted,
            q.numpy(),
            drafted,
            u.tolist(),
            draws=lambda position: self._proposals(first_draws[position], len(ids) + position),
            uniform=self._uniform,
        )
        known_p[accepted, last.id] = last.p
        verdict = Verdict.on(len(drafted), accepted, last.id)
        return JudgedRound(draft, drafted, known_p, known_p, u, verdict, p_is_complete=False)

    def _first_draws(self, ids: Sequence[int], drafted: Sequence[int]) -> list[Drawn]:
        """A draw from p at the position of each draft, and at the next one."""
        self._server.append([ids[-1], *drafted])
        lengths = range(len(ids), len(ids) + len(drafted) + 1)
        draws = self._server.drawn(lengths, self._wanted(drafted))
        return [draws_after_prefix[0] for draws_after_prefix in draws]

    def _proposals(self, first: Drawn, length: int) -> Iterator[Drawn]:
        """Endless draws from p after the first `length` tokens."""
        yield first
        lengths = range(length, length + 1)
        for count in chain(MORE, repeat(MORE[-1])):
            (drawn,) = self._server.drawn(lengths, self._wanted((), count))
            yield from drawn

    def _wanted(self, asked: Sequence[int], count: int = 1) -> Wanted:
        seed = int(self._draws.numbers(1)[0] * 2**53)
        return Wanted(asked, self._run.settings, seed, count)

    def _uniform(self) -> float:
        return float(self._draws.numbers(1)[0])
