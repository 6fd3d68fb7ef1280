"""From a judged round to the tokens that a reader sees. No lane's clock runs in here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..trace import DIGITS, Choice, Outcome, Token
from .detokenize import Pieces, TextStream
from .sampling import residual
from .types import Judged

LISTED = 5  # alternatives shown per distribution


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts of a round: what each emitted token adds, and each draft that was not emitted."""

    emitted: list[str]
    not_emitted: list[str]


def texts_of(stream: TextStream, judged: Judged, emitted: list[int]) -> Texts:
    """Advance `stream` over the emitted ids, and a copy of it over the drafts not emitted."""
    kept = min(judged.verdict.accepted, len(emitted))
    added = [stream.push(i) for i in emitted[:kept]]
    not_emitted: list[str] = []
    if judged.ids[kept:]:
        fork = stream.copy()
        not_emitted = [fork.push(i) for i in judged.ids[kept:]]
        not_emitted[-1] += fork.flush()
    return Texts(added + [stream.push(i) for i in emitted[kept:]], not_emitted)


class Annotator:
    """Makes `Token`s. Keeps the texts of single pieces between rounds."""

    def __init__(self, tokenizer: Any, greedy: bool) -> None:
        self._pieces = Pieces(tokenizer)
        self._greedy = greedy

    def tokens(
        self, judged: Judged, emitted: list[int], texts: Texts
    ) -> tuple[list[Token], list[Token]]:
        """The drafted and the emitted tokens of a round.

        `emitted` may be shorter than the verdict allows, cut by an end: what was drafted
        after the cut counts as never judged.
        """
        accepted, next_id, outcome = judged.verdict
        kept = min(accepted, len(emitted))
        ended = len(emitted) <= accepted
        views = self._views(judged)
        drafted = []
        for i, token_id in enumerate(judged.ids):
            if i < kept:
                drafted.append(views.token(i, token_id, texts.emitted[i], "accepted"))
            elif i == kept and not ended:
                drafted.append(views.token(i, token_id, texts.not_emitted[0], "rejected"))
            else:
                drafted.append(views.unjudged(i, token_id, texts.not_emitted[i - kept]))
        if ended:
            return drafted, drafted[:kept]
        last = views.final(accepted, next_id, texts.emitted[-1], outcome)
        return drafted, [*drafted[:kept], last]

    def _views(self, judged: Judged) -> _Views:
        """Every number that the cards show, copied to the host at once."""
        draft, p = judged.draft, judged.p
        shown_p = torch.softmax(judged.logits, -1) if self._greedy else p
        views = _Views(self._greedy, p, shown_p, self._tops(shown_p))
        if draft is None:
            return views
        # Copied drafts have no logits: q is then all there is to show.
        soft_logits = draft.logits if self._greedy else None
        shown_q = draft.q if soft_logits is None else torch.softmax(soft_logits, -1)
        place = draft.ids.unsqueeze(-1)
        views.u = judged.u.tolist()
        views.q, views.shown_q = draft.q, shown_q
        views.q_drafted = draft.q.gather(-1, place).squeeze(-1).tolist()
        views.p_drafted = p[:-1].gather(-1, place).squeeze(-1).tolist()
        views.beta = torch.minimum(p[:-1], draft.q).sum(-1).tolist()
        views.top_q = self._tops(shown_q)
        if judged.verdict.outcome == "corrected":
            row = judged.verdict.accepted
            left = residual(p[row], draft.q[row])
            views.top_residual = self._tops(left.unsqueeze(0))[0]
        return views

    def _tops(self, rows: Tensor) -> list[tuple[Choice, ...]]:
        best = rows.topk(min(LISTED, rows.shape[-1]))
        return [
            tuple(
                Choice(i, self._pieces[i], round(value, DIGITS))
                for i, value in zip(ids, values, strict=True)
                if value > 0
            )
            for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


class _Views:
    """A round's distributions, read position by position."""

    def __init__(
        self, greedy: bool, p: Tensor, shown_p: Tensor, top_p: list[tuple[Choice, ...]]
    ) -> None:
        self.greedy, self.p, self.shown_p, self.top_p = greedy, p, shown_p, top_p
        self.q = self.shown_q = p[:0]
        self.u: list[float] = []
        self.q_drafted: list[float] = []
        self.p_drafted: list[float] = []
        self.beta: list[float] = []
        self.top_q: list[tuple[Choice, ...]] = []
        self.top_residual: tuple[Choice, ...] = ()

    def unjudged(self, i: int, token_id: int, text: str) -> Token:
        """A draft that no verdict reached: only the draft model's view of it has a meaning."""
        soft = self.shown_q[i, token_id].item() if self.greedy else None
        return Token(
            token_id, text, "ignored", q=self.q_drafted[i], soft_q=soft, top_q=self.top_q[i]
        )

    def token(self, i: int, token_id: int, text: str, outcome: Outcome) -> Token:
        """A draft that was judged."""
        token = self.unjudged(i, token_id, text)
        return replace(
            token,
            outcome=outcome,
            p=self.p_drafted[i],
            u=self.u[i],
            beta=self.beta[i],
            soft_p=self.shown_p[i, token_id].item() if self.greedy else None,
            top_p=self.top_p[i],
            top_residual=self.top_residual if outcome == "rejected" else (),
        )

    def final(self, i: int, token_id: int, text: str, outcome: Outcome) -> Token:
        """The token that the target itself drew at place i."""
        corrected = outcome == "corrected"
        soft_q = self.shown_q[i, token_id].item() if corrected and self.greedy else None
        return Token(
            token_id,
            text,
            outcome,
            p=self.p[i, token_id].item(),
            q=self.q[i, token_id].item() if corrected else None,
            soft_p=self.shown_p[i, token_id].item() if self.greedy else None,
            soft_q=soft_q,
            top_p=self.top_p[i],
            top_q=self.top_q[i] if corrected else (),
            top_residual=self.top_residual if corrected else (),
        )
