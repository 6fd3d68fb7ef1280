"""The records of the core's own kinds: the token rule, no drafts, transformers' modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .drafter import NoDrafter
from .records import DrafterKind, EngineKind, VerdictKind

if TYPE_CHECKING:
    from torch import Tensor

    from .eager import EagerEngine
    from .protocols import RandomSource


def decide_by_token_rule(
    p: Tensor, q: Tensor, drafted: Tensor, u: Tensor, source: RandomSource
) -> Tensor:
    """Import and call `tensor_verdict.decide_on_tensors`."""
    from .tensor_verdict import decide_on_tensors

    return decide_on_tensors(p, q, drafted, u, source)


def make_eager_engine(model: Any, vocab: int) -> EagerEngine:
    """Make an `EagerEngine`, or a `RunningEngine` for a model with running states."""
    from .eager import EagerEngine
    from .model_facts import complete
    from .running_engine import RunningEngine
    from .running_states import running_states

    complete(model)
    running = running_states(model)
    return EagerEngine(model, vocab) if running is None else RunningEngine(model, vocab, running)


TOKEN_RULE = VerdictKind(
    name="token",
    decide=decide_by_token_rule,
    label="token by token",
    clause="drafts are judged one after another by p / q",
    exactness_note="Exact does not mean the same words, it means the same chances. A guess is "
    "accepted with probability min(1, p/q); after a rejection the token is drawn from max(0, p − "
    "q). Together they give every token exactly the probability p that the target alone gives it "
    "(Leviathan et al. 2022, theorem 1).",
    correction_label="residual max(0, p − q)",
)

NO_DRAFTS = DrafterKind(
    name="none",
    make=NoDrafter,
    label="no drafts",
    choice="None",
    clause="no guesses: it does what the other lane does",
    drafts=False,
)

EAGER = EngineKind(
    name="eager",
    label="transformers' own modules",
    make=make_eager_engine,
    hidden_states=True,
    anywhere=True,
    call_on_cpu=2**18,
    call_elsewhere=2**27,
)
