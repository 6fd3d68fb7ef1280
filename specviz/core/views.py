"""The numbers of a judged round, as its cards show them. No lane's clock runs in here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import ModelError
from ..settings import Settings
from .events import DIGITS, Choice, Outcome, Token
from .kinds import VerdictKind
from .registry import verdict_kind
from .text import Pieces
from .types import Draft, Judged

LISTED = 5  # alternatives shown per distribution

OF_ALL_OF_P = ("beta", "best_p", "ids_p", "best_residual", "ids_residual")
"""Numbers that only a whole distribution of the target tells."""


class Views:
    """A round's numbers on the host, copied there at once and read position by position.

    partial: as `Engine.partial`.
    """

    def __init__(self, judged: Judged, settings: Settings, pieces: Pieces, partial: bool) -> None:
        numbers = copied(_shown_numbers(judged, settings, partial))
        if not judged.whole:
            numbers = {name: some for name, some in numbers.items() if name not in OF_ALL_OF_P}
        self._numbers, self._pieces = numbers, pieces
        self._seen = judged.draft.seen if judged.draft else None
        self._greedy, self._partial = settings.greedy, partial
        self._rule = verdict_kind(settings.rule)

    def check(self, index: int) -> None:
        """Raise `ModelError` if a model gave NaN or +inf in round `index`, from 1: they make a
        distribution meaningless."""
        for role in ("target", "draft"):
            if not self._numbers.get(role, True):
                raise ModelError(
                    f"the {role} gave logits that are not finite in round {index}: load it in "
                    "fp32 or bf16, or check its weights."
                )

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
    kind = verdict_kind(settings.rule)
    if kind.numbers is not None:
        found |= kind.numbers(p, draft.q, draft.ids)
    if outcome == "corrected":
        found["last_q"], found["last_soft_q"] = draft.q[row, next_id], soft_q[row, next_id]
        found |= _left_after_rejection(kind, p, draft, row)
    return found


def _usable(logits: Tensor) -> Tensor:
    return torch.isfinite(logits.amax(-1)).all()


def _best(name: str, rows: Tensor) -> dict[str, Tensor]:
    best = rows.topk(min(LISTED, rows.shape[-1]))
    return {f"best_{name}": best.values, f"ids_{name}": best.indices}


def _left_after_rejection(
    kind: VerdictKind, p: Tensor, draft: Draft, place: int
) -> dict[str, Tensor]:
    """The likeliest of what the rejected draft at `place` is replaced from; empty where that is p
    itself."""
    if not kind.residual:
        return {}
    if kind.after is None:
        return _best("residual", residual(p[place], draft.q[place]).unsqueeze(0))
    left = kind.after(p, draft.q, draft.ids, place)
    return {} if left is None else _best("residual", left.unsqueeze(0))


def residual(p: Tensor, q: Tensor, otherwise: Tensor | None = None) -> Tensor:
    """norm(max(0, p - q)), [vocab]: the distribution of the token that replaces a rejected one.

    Falls back to `otherwise`, by default p, where rounding leaves no mass (Leviathan et al. 2022,
    arXiv 2211.17192).
    """
    left = (p - q).clamp_(min=0.0)
    mass = left.sum()
    return torch.where(usable(mass), left / mass, p if otherwise is None else otherwise)


def usable(mass: Tensor) -> Tensor:
    """Whether a mass can be shared out: finite and above 0."""
    return torch.isfinite(mass) & (mass > 0)
