"""The rule that judges drafts, for programs."""

from __future__ import annotations

import torch
from torch import Tensor

from .core.tensor_verdict import decide_on_tensors
from .core.types import Verdict as Verdict


def verify(p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, generator: torch.Generator) -> Verdict:
    """Run `core.tensor_verdict.decide_on_tensors` and return its `Verdict`, on the host."""
    return Verdict.on(len(drafted), *decide_on_tensors(p, q, drafted, u, generator).tolist())
