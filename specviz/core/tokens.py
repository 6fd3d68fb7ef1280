"""From a judged round to the tokens that a reader sees. No lane's clock runs in here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..kinds import verdict_kind
from ..settings import Settings
from .events import DIGITS, Choice, Outcome, Token
from .text import Pieces, TextStream
from .types import Judged
from .verdict import left_after_rejection, shown_numbers

LISTED = 5  # alternatives shown per distribution

OF_ALL_OF_P = ("beta", "best_p", "ids_p", "best_residual", "ids_residual")
"""Numbers that only a whole distribution of the target tells."""


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

    def __init__(self, tokenizer: Any, settings: Settings, partial: bool = False) -> None:
        """partial: the target's logits are log-probabilities of its likeliest tokens only."""
        self._pieces = Pieces(tokenizer)
        self._settings, self._partial = settings, partial

    def views(self, judged: Judged) -> Views:
        """Every number that the cards show of a round, copied to the host at once."""
        seen = judged.draft.seen if judged.draft else None
        numbers = copied(_shown_numbers(judged, self._settings, self._partial))
        if not judged.whole:
            numbers = {name: some for name, some in numbers.items() if name not in OF_ALL_OF_P}
        return Views(numbers, self._settings, self._pieces, seen, self._partial)

    def tokens(
        self, judged: Judged, emitted: list[int], texts: Texts, views: Views
    ) -> tuple[list[Token], list[Token]]:
        """The drafted and the emitted tokens of a round.

        `emitted` may be shorter than the verdict allows, cut by an end: what was drafted
        after the cut counts as never judged.
        """
        accepted, next_id, outcome = judged.verdict
        kept = min(accepted, len(emitted))
        ended = len(emitted) <= accepted
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


def copied(parts: Mapping[str, Tensor]) -> dict[str, Any]:
    """The numbers of each part, as `Tensor.tolist` gives them.

    From a GPU they come in one copy, as fp64, which holds fp32, ids and truth values exactly: each
    copy makes the host wait.
    """
    place = next(iter(parts.values())).device
    if place.type == "cpu":
        return {name: part.tolist() for name, part in parts.items()}
    numbers = torch.cat([part.to(place, torch.float64).flatten() for part in parts.values()]).cpu()
    split = numbers.split([part.numel() for part in parts.values()])
    return {
        name: piece.to(part.dtype).reshape(part.shape).tolist()
        for piece, (name, part) in zip(split, parts.items(), strict=True)
    }


def _shown_numbers(judged: Judged, settings: Settings, partial: bool) -> dict[str, Tensor]:
    """What `Views` is made from, by name; n drafted tokens.

    p, q, u, beta: [n], of the drafted tokens. soft_p, soft_q: [n], their probabilities at
    temperature 1, if greedy. last_...: those of the token that the target drew. best_..., ids_...:
    [.., LISTED]. target, draft: whether all logits are finite or -inf. weight, threshold, chance:
    [n], if the verdict has them.
    """
    p, draft, (row, next_id, outcome) = judged.p, judged.draft, judged.verdict
    greedy, soft_p = settings.greedy, p
    if greedy:
        # Tokens that are not listed keep the rest of the mass among them, unknown to whom.
        soft_p = judged.logits.exp() if partial else torch.softmax(judged.logits, -1)
    found = {
        "target": _usable(judged.logits),
        "last_p": p[row, next_id],
        "last_soft_p": soft_p[row, next_id],
        **_best("p", soft_p),
    }
    if draft is None:
        return found
    logits = draft.logits
    if logits is not None:
        found["draft"] = _usable(logits)
    # Copied drafts have no logits: q is then all there is to show. The others' may lie elsewhere.
    soft_q = draft.q
    if greedy and logits is not None:
        soft_q = torch.softmax(logits.to(p.device), -1)
    place = draft.ids.unsqueeze(-1)
    for name, rows in {"p": p[:-1], "q": draft.q, "soft_p": soft_p[:-1], "soft_q": soft_q}.items():
        found[name] = rows.gather(-1, place).squeeze(-1)
    found["u"] = torch.as_tensor(judged.u)
    found["beta"] = torch.minimum(p[:-1], draft.q).sum(-1)
    found |= _best("q", soft_q)
    found |= shown_numbers(settings.rule, p, draft.q, draft.ids)
    if outcome == "corrected":
        found["last_q"], found["last_soft_q"] = draft.q[row, next_id], soft_q[row, next_id]
        left = left_after_rejection(settings.rule, p, draft.q, draft.ids, row)
        if left is not None:
            found |= _best("residual", left.unsqueeze(0))
    return found


def _usable(logits: Tensor) -> Tensor:
    return torch.isfinite(logits.amax(-1)).all()


def _best(name: str, rows: Tensor) -> dict[str, Tensor]:
    best = rows.topk(min(LISTED, rows.shape[-1]))
    return {f"best_{name}": best.values, f"ids_{name}": best.indices}


class Views:
    """A round's numbers on the host, read position by position."""

    def __init__(
        self,
        numbers: dict[str, Any],
        settings: Settings,
        pieces: Pieces,
        seen: Sequence[int] | None = None,
        partial: bool = False,
    ) -> None:
        self._numbers, self._pieces, self._seen = numbers, pieces, seen
        self._greedy, self._partial = settings.greedy, partial
        self._rule = verdict_kind(settings.rule)

    @property
    def not_finite(self) -> str | None:
        """The role of a model that gave NaN or +inf, which make a distribution meaningless."""
        roles = ("target", "draft")
        return next((role for role in roles if not self._numbers.get(role, True)), None)

    def unjudged(self, i: int, token_id: int, text: str) -> Token:
        """A draft that no verdict reached: only the draft model's view of it has a meaning, unless
        the verdict looks at all drafts of a round at once."""
        together = ("p", "u", "weight", "threshold") if self._rule.together else ()
        return Token(
            token_id,
            text,
            "ignored",
            q=self._numbers["q"][i],
            soft_q=self._soft("soft_q", i),
            top_q=self._top("q", i),
            seen=self._seen[i] if self._seen is not None else None,
            **{name: self._numbers[name][i] for name in together},
        )

    def token(self, i: int, token_id: int, text: str, outcome: Outcome) -> Token:
        """A draft that was judged."""
        token = self.unjudged(i, token_id, text)
        return replace(
            token,
            outcome=outcome,
            p=self._numbers["p"][i],
            u=self._numbers["u"][i] if self._rule.draws else None,
            weight=self._of("weight", i),
            threshold=self._of("threshold", i),
            chance=self._of("chance", i),
            beta=self._of("beta", i),
            soft_p=self._soft("soft_p", i),
            top_p=self._top("p", i),
            top_residual=self._top("residual", 0) if outcome == "rejected" else (),
        )

    def final(self, i: int, token_id: int, text: str, outcome: Outcome) -> Token:
        """The token that the target itself drew at place i."""
        corrected = outcome == "corrected"
        return Token(
            token_id,
            text,
            outcome,
            p=self._numbers["last_p"],
            q=self._numbers.get("last_q"),
            soft_p=self._soft("last_soft_p"),
            soft_q=self._soft("last_soft_q") if corrected else None,
            top_p=self._top("p", i),
            top_q=self._top("q", i) if corrected else (),
            top_residual=self._top("residual", 0) if corrected else (),
        )

    def _of(self, name: str, i: int) -> float | None:
        """A number that not every run has."""
        return self._numbers[name][i] if name in self._numbers else None

    def _soft(self, name: str, i: int | None = None) -> float | None:
        if not self._greedy:
            return None
        found = self._numbers[name]
        number: float = found if i is None else found[i]
        unknown = self._partial and name.endswith("soft_p") and number == 0.0
        return None if unknown else number

    def _top(self, name: str, i: int) -> tuple[Choice, ...]:
        # What follows a rejection may be p itself, and all of p may be unknown.
        if f"ids_{name}" not in self._numbers:
            return ()
        pairs = zip(self._numbers[f"ids_{name}"][i], self._numbers[f"best_{name}"][i], strict=True)
        return tuple(
            Choice(token_id, self._pieces[token_id], round(value, DIGITS))
            for token_id, value in pairs
            if value > 0
        )
