"""The data that the parts of a round exchange; `protocols` has their interfaces."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .events import EndReason, Round
from .messages import Message
from .settings import Settings

if TYPE_CHECKING:
    from .protocols import RandomSource, Rule, UniformDraws

Prompt: TypeAlias = str | Sequence[int] | Sequence[Mapping[str, Any] | Message]
"""A text, ids, or the turns of a conversation, {"role": ..., "content": ...}."""

Mode: TypeAlias = Literal["interleaved", "sequential"]
Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft run of n tokens, valid until the next one.

    ids: int64 [n].
    q: fp32 [n, vocab], the very rows that `ids` was drawn from.
    step_logits: the logits that q was computed from, perhaps divided by the temperature: tensors
        fp32 [.., vocab] with n rows in all; None if neither a model nor counts drafted.
    seen: for drafts from counts, how often the run before each of the n tokens was followed by
        anything.
    confidences: of the n tokens, where the policy wants to know (`tensor_draws.DraftEnd`).
    """

    ids: Tensor
    q: Tensor
    step_logits: Sequence[Tensor] | None = None
    seen: Sequence[int] | None = None
    confidences: Sequence[float] = ()

    @classmethod
    def of_steps(
        cls,
        ids: list[Tensor],
        q: list[Tensor],
        step_logits: Sequence[Tensor],
        confidences: Sequence[float],
        run: RunContext,
    ) -> Draft:
        """Join drafts drawn one after another: each step's id, int64 [1], and the row it was drawn
        from, [1, vocab]. Move them to the device that compares p and q."""
        return cls(
            torch.cat(ids).to(run.device),
            torch.cat(q).to(run.device),
            step_logits,
            confidences=confidences,
        )

    @classmethod
    def certain(cls, ids: Sequence[int], run: RunContext) -> Draft:
        """Make drafts that were not drawn at random: each row of q is 1 at its token."""
        drafted = torch.tensor(ids, device=run.device)
        q = torch.zeros(len(ids), run.vocab, device=run.device)
        return cls(drafted, q.scatter_(-1, drafted.unsqueeze(-1), 1.0))

    @property
    def logits(self) -> Tensor | None:
        """`step_logits` as one tensor, fp32 [n, vocab]."""
        if not self.step_logits:
            return None
        return torch.cat(tuple(self.step_logits))


class Verdict(NamedTuple):
    """The decision on one round's drafts.

    accepted: how many leading drafted tokens are kept, 0 to gamma.
    next_id: the id that follows them.
    outcome: "corrected" if it was drawn after a rejection, "bonus" if none was rejected.
    """

    accepted: int
    next_id: int
    outcome: Literal["corrected", "bonus"]

    @classmethod
    def on(cls, gamma: int, accepted: int, next_id: int) -> Verdict:
        """Make the verdict that keeps `accepted` of `gamma` drafted tokens."""
        return cls(accepted, next_id, "bonus" if accepted == gamma else "corrected")


class JudgedRound(NamedTuple):
    """A round's verdict and all of its inputs: n drafted tokens, vocabulary size vocab.

    ids: the drafted ids, on the host.
    logits, p: fp32 [n + 1, vocab] of the target. Where p is not one-hot, the host's paths compute
        it in the memory of the logits, which then are p too.
    u: [n] uniform draws, fp64.
    p_is_complete: whether p is all of the target's distributions, not only the drafts' own entries
        and that of the next token.
    """

    draft: Draft | None
    ids: list[int]
    logits: Tensor
    p: Tensor
    u: Tensor | Doubles
    verdict: Verdict
    p_is_complete: bool = True


class TimedRound(NamedTuple):
    """A round that a device ran by itself.

    draft_seconds, verify_seconds: of the device's own clock.
    is_followed: whether the next round was enqueued before this one was read, so that the device
        does not wait for the host.
    """

    judged: JudgedRound
    draft_seconds: float
    verify_seconds: float
    is_followed: bool


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A lane's first event. Keys are "target" and, in a lane that drafts with a model, "draft".

    seconds: to read the prompt.
    engines: their names.
    threads: that share the lane's passes.
    layers: how many of the target's first layers draft, if they do.
    """

    seconds: dict[str, float]
    engines: dict[str, str]
    threads: int
    layers: int | None = None


LaneEvents: TypeAlias = Generator[Prefilled | Round, bool | None, EndReason]


@dataclass(frozen=True, slots=True)
class RunContext:
    """The context that all parts of one lane's run share.

    vocab: size of the vocabulary.
    device: where p and q are compared.
    draws: uniform draws for drafts and verdicts, in order.
    other_rule: a rule on tensors that judges the drafts; None for the token rule, of which each
        path has its own form.
    drafter_draws: for drafters that draw in the host's memory, independent of `draws`.
    memory: earlier texts, as ids, to draft from.
    """

    settings: Settings
    vocab: int
    device: torch.device
    draws: RandomSource
    other_rule: Rule | None
    drafter_draws: UniformDraws
    memory: Sequence[Sequence[int]] = ()


def host_ids(ids: Sequence[int]) -> Tensor:
    """Make int64 [n] in the host's memory; torch.tensor takes three times as long."""
    return torch.from_numpy(np.array(ids, np.int64))
