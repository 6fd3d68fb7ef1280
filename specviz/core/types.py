"""What the parts of a round hand to each other, and the two protocols between them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..settings import Settings
from .engine import Engine
from .events import EndReason, Round
from .sampling import RandomSource, UniformDraws
from .verdict import Decide, Verdict

Prompt: TypeAlias = str | list[int] | tuple[int, ...]
Mode: TypeAlias = Literal["interleaved", "sequential"]
Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft run of n tokens, valid until the next one.

    ids: int64 [n]. q: fp32 [n, vocab], the very rows that `ids` was drawn from.
    rows: of logits, perhaps divided by the temperature, fp32 [.., vocab], n in all, from which q
    was computed; None if neither a model nor counts drafted. seen: for drafts from counts, how
    often the run before each of the n tokens was followed by anything.
    """

    ids: Tensor
    q: Tensor
    rows: Sequence[Tensor] | None = None
    seen: Sequence[int] | None = None

    @classmethod
    def certain(cls, ids: Sequence[int], run: RunContext) -> Draft:
        """Drafts that are made without chance: each row of q is 1 at its token."""
        drafted = torch.tensor(ids, device=run.device)
        q = torch.zeros(len(ids), run.vocab, device=run.device)
        return cls(drafted, q.scatter_(-1, drafted.unsqueeze(-1), 1.0), None)

    @property
    def logits(self) -> Tensor | None:
        """`rows` as one tensor, fp32 [n, vocab]."""
        return torch.cat(tuple(self.rows)) if self.rows else None


class Judged(NamedTuple):
    """Everything that a verdict was made from; n drafted tokens, vocabulary size vocab.

    ids: the drafted ids, on the host. logits, p: fp32 [n + 1, vocab] of the target; they may
    share their memory where p is not one-hot. u: [n] uniform draws, fp64. whole: whether p is all
    of the target's distributions, not only the drafts' own entries and that of the next token.
    """

    draft: Draft | None
    ids: list[int]
    logits: Tensor
    p: Tensor
    u: Tensor | Doubles
    verdict: Verdict
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A lane's first event. Keys are "target" and, in a lane that drafts with a model, "draft".

    seconds: to read the prompt. forms: names of the engines. threads: that share the lane's
    passes. layers: how many of the target's first layers draft, if they do.
    """

    seconds: dict[str, float]
    forms: dict[str, str]
    threads: int
    layers: int | None = None


LaneEvents: TypeAlias = Generator[Prefilled | Round, bool | None, EndReason]


@dataclass(frozen=True, slots=True)
class RunContext:
    """What all parts of one lane's run share.

    vocab: size of the vocabulary. device: where p and q are compared. source: the uniform draws
    of the run, in order. decide: the acceptance rule. host: draws for drafters that draw in the
    host's memory, independent of `source`. memory: earlier texts, as ids, to draft from.
    """

    settings: Settings
    vocab: int
    device: torch.device
    source: RandomSource
    decide: Decide
    host: UniformDraws
    memory: Sequence[Sequence[int]] = ()


class DecodingPath(Protocol):
    """One engine that drafts and judges. Chosen once per engine and run (`paths.make_path`).

    All paths draw the same tokens from the same uniforms; they differ in how many calls they need.
    """

    @property
    def engine(self) -> Engine: ...

    def prepare(
        self, task: Literal["draft", "judge"], length: int, most: int, layers: int | None = None
    ) -> None:
        """Make ready, before any clock runs, what a run from `length` to `most` tokens needs."""
        ...

    def draft(self, ids: Sequence[int], count: int, layers: int | None = None) -> Draft:
        """`count` tokens (at least 1) to follow the committed `ids`, drawn one after another from
        the engine's model, or from its first `layers`."""
        ...

    def judge(self, ids: Sequence[int], draft: Draft | None) -> Judged:
        """One pass over the last of the committed `ids` and the drafts, and the verdict on them.

        The tensors of the result are valid until the next call.
        """
        ...
