"""The numbers of a judged round, as its cards show them. No lane's clock runs in here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from ..base.errors import ModelError
from .events import DIGITS, Choice, Outcome, Token
from .records import VerdictKind
from .registry import verdict_kind
from .settings import Settings
from .tensor_draws import residual
from .text import Pieces
from .truncation import largest
from .types import Draft, JudgedRound

LISTED = 5  # alternatives shown per distribution

NEED_COMPLETE_P = ("beta", "best_p", "ids_p", "best_residual", "ids_residual")
"""The numbers that need the target's complete distribution."""


class Views:
    """A round's numbers on the host, copied together and read position by position.

    top_logprobs_only: as `Engine` has it.
    """

    def __init__(
        self, judged: JudgedRound, settings: Settings, pieces: Pieces, top_logprobs_only: bool
    ) -> None:
        self._numbers = copied(_shown_numbers(judged, settings, top_logprobs_only))
        if not judged.p_is_complete:
            for name in NEED_COMPLETE_P:
                self._numbers.pop(name, None)
        if judged.draft is not None and judged.draft.seen is not None:
            self._numbers["seen"] = judged.draft.seen
        self._pieces = pieces
        self._greedy = settings.greedy
        self._top_logprobs_only = top_logprobs_only
        self._verdict_kind = verdict_kind(settings.effective_verdict)

    def check(self, index: int) -> None:
        """Raise `ModelError` if a model gave NaN or +inf in round `index`, from 0: they make a
        distribution meaningless."""
        for role in ("target", "draft"):
            if not all(map(isfinite, self._numbers.get(role, ()))):
                raise ModelError(
                    f"the {role} gave logits that are not finite in round {index + 1}: load it in "
                    "fp32 or bf16, or check its weights."
                )

    def unjudged(self, i: int, token_id: int, text: str) -> Token:
        """Make the token of a draft that no verdict reached.

        Only the draft model's numbers have a meaning, unless the verdict judges all drafts of a
        round together.
        """
        if not self._verdict_kind.judges_jointly:
            return Token(token_id, text, "ignored", **self._draft_fields(i))
        return Token(
            token_id,
            text,
            "ignored",
            **self._draft_fields(i),
            p=self._numbers["p"][i],
            u=self._numbers["u"][i],
            weight=self._numbers["weight"][i],
            threshold=self._numbers["threshold"][i],
        )

    def token(self, i: int, token_id: int, text: str, outcome: Outcome) -> Token:
        """Make the token of a draft that was judged."""
        u = self._numbers["u"][i] if self._verdict_kind.draws else None
        top_residual = self._top("residual", 0) if outcome == "rejected" else ()
        return Token(
            token_id,
            text,
            outcome,
            **self._draft_fields(i),
            p=self._numbers["p"][i],
            u=u,
            weight=self._optional("weight", i),
            threshold=self._optional("threshold", i),
            chance=self._optional("chance", i),
            beta=self._optional("beta", i),
            soft_p=self._soft("soft_p", i),
            top_p=self._top("p", i),
            top_residual=top_residual,
        )

    def _draft_fields(self, i: int) -> dict[str, Any]:
        """The fields of a drafted `Token` that need no verdict."""
        return {
            "q": self._numbers["q"][i],
            "soft_q": self._soft("soft_q", i),
            "top_q": self._top("q", i),
            "seen": self._optional("seen", i),
        }

    def final(self, i: int, token_id: int, text: str, outcome: Outcome) -> Token:
        """Make the token that the target itself drew at position i."""
        token = Token(
            token_id,
            text,
            outcome,
            p=self._numbers["last_p"],
            q=self._numbers.get("last_q"),
            soft_p=self._soft("last_soft_p"),
            top_p=self._top("p", i),
        )
        if outcome != "corrected":
            return token
        return replace(
            token,
            soft_q=self._soft("last_soft_q"),
            top_q=self._top("q", i),
            top_residual=self._top("residual", 0),
        )

    def _optional(self, name: str, i: int) -> Any:
        """Read a number that not every run has; None without it."""
        if name not in self._numbers:
            return None
        return self._numbers[name][i]

    def _soft(self, name: str, i: int | None = None) -> float | None:
        """A probability at temperature 1, in a greedy run; None where it is unknown.

        i: its position, None for a single number.
        """
        if not self._greedy:
            return None
        numbers = self._numbers[name]
        probability: float = numbers if i is None else numbers[i]
        is_unlisted = self._top_logprobs_only and probability == 0.0
        if is_unlisted and name.endswith("soft_p"):
            return None
        return probability

    def _top(self, name: str, i: int) -> tuple[Choice, ...]:
        """The likeliest tokens of a distribution; empty where they are unknown."""
        # A correction may come from p itself, and all of p may be unknown.
        if f"ids_{name}" not in self._numbers:
            return ()
        ids = self._numbers[f"ids_{name}"][i]
        probabilities = self._numbers[f"best_{name}"][i]
        choices = []
        for token_id, probability in zip(ids, probabilities, strict=True):
            if probability > 0:
                text = self._pieces[token_id]
                choices.append(Choice(token_id, text, round(probability, DIGITS)))
        return tuple(choices)


def copied(parts: Mapping[str, Tensor]) -> dict[str, Any]:
    """Copy each part's numbers to the host, as `Tensor.tolist` does.

    From a GPU they come in one copy, since each copy makes the host wait. It is fp64, which holds
    fp32, ids and truth values exactly.
    """
    device = next(iter(parts.values())).device
    if device.type == "cpu":
        return {name: part.tolist() for name, part in parts.items()}
    flat = [part.to(device, torch.float64).flatten() for part in parts.values()]
    sizes = [part.numel() for part in parts.values()]
    pieces = torch.cat(flat).cpu().split(sizes)
    numbers = {}
    for (name, part), piece in zip(parts.items(), pieces, strict=True):
        numbers[name] = piece.to(part.dtype).reshape(part.shape).tolist()
    return numbers


def _shown_numbers(
    judged: JudgedRound, settings: Settings, top_logprobs_only: bool
) -> dict[str, Tensor]:
    """The numbers for `Views`, by name; n drafted tokens.

    p, q, u, beta: [n], of the drafted tokens.
    soft_p, soft_q: [n], their probabilities at temperature 1, if greedy.
    last_p, last_q, last_soft_p, last_soft_q: those of the token that the target drew.
    best_..., ids_...: [.., LISTED], the likeliest tokens of a distribution.
    target, draft: the largest logit at each position, or whatever stands in its place (see
        `JudgedRound`); only used to see whether it is finite.
    weight, threshold, chance: [n], if the verdict has them.
    """
    p = judged.p
    position, next_id, _ = judged.verdict
    shown_p = _shown_p(judged, settings, top_logprobs_only)
    numbers = {
        "target": judged.logits.amax(-1),
        "last_p": p[position, next_id],
        "last_soft_p": shown_p[position, next_id],
        **_best("p", shown_p),
    }
    if judged.draft is not None:
        numbers |= _draft_numbers(judged, judged.draft, settings, shown_p)
    return numbers


def _draft_numbers(
    judged: JudgedRound, draft: Draft, settings: Settings, shown_p: Tensor
) -> dict[str, Tensor]:
    """The numbers of `_shown_numbers` that only a round with drafts has."""
    p = judged.p
    draft_logits = draft.logits
    # Copied drafts have no logits: only q can be shown. Other drafts' may be on another device.
    soft_q = draft.q
    if settings.greedy and draft_logits is not None:
        soft_q = torch.softmax(draft_logits.to(p.device), -1)
    numbers = {
        "p": _probabilities_of(draft.ids, p[:-1]),
        "q": _probabilities_of(draft.ids, draft.q),
        "soft_p": _probabilities_of(draft.ids, shown_p[:-1]),
        "soft_q": _probabilities_of(draft.ids, soft_q),
        "u": torch.as_tensor(judged.u),
        "beta": torch.minimum(p[:-1], draft.q).sum(-1),
        **_best("q", soft_q),
    }
    if draft_logits is not None:
        numbers["draft"] = draft_logits.amax(-1)
    kind = verdict_kind(settings.effective_verdict)
    if kind.numbers is not None:
        numbers |= kind.numbers(p, draft.q, draft.ids)
    position, next_id, outcome = judged.verdict
    if outcome == "corrected":
        numbers["last_q"] = draft.q[position, next_id]
        numbers["last_soft_q"] = soft_q[position, next_id]
        numbers |= _best_after_rejection(kind, p, draft, position)
    return numbers


def _shown_p(judged: JudgedRound, settings: Settings, top_logprobs_only: bool) -> Tensor:
    """The target's distributions to show, fp32 [n + 1, vocab]: at temperature 1 in a greedy run."""
    if not settings.greedy:
        return judged.p
    if top_logprobs_only:
        # Unlisted tokens share the rest of the mass in an unknown way.
        return judged.logits.exp()
    return torch.softmax(judged.logits, -1)


def _probabilities_of(ids: Tensor, distributions: Tensor) -> Tensor:
    """The probabilities [n] of int64 `ids` [n], each in its row of [n, vocab]."""
    return distributions.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def _best(name: str, distributions: Tensor) -> dict[str, Tensor]:
    best, ids = largest(distributions, min(LISTED, distributions.shape[-1]))
    return {f"best_{name}": best, f"ids_{name}": ids}


def _best_after_rejection(
    kind: VerdictKind, p: Tensor, draft: Draft, position: int
) -> dict[str, Tensor]:
    """The likeliest tokens to replace the draft rejected at `position`; empty where they come from
    p itself."""
    if not kind.residual:
        return {}
    if kind.correction is None:
        return _best("residual", residual(p[position], draft.q[position]).unsqueeze(0))
    corrections = kind.correction(p, draft.q, draft.ids, position)
    if corrections is None:
        return {}
    return _best("residual", corrections.unsqueeze(0))
