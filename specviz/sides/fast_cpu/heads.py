"""Which heads on a target can run as compiled passes, and whether they then give their own
logits."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from ...core.states import EAGLE, DraftHead, StateReader
from .support import MOST_PARAMETERS, STATIC_ROPE, TRIED, UNIT, are_close, has_compiler

if TYPE_CHECKING:
    from ...core.protocols import StateEngine

_checked: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def compiled_head(head: DraftHead, vocab: int, target: StateEngine) -> StateReader | None:
    """An engine of compiled passes for a head, with an empty cache, or None if it cannot have one.

    The first for a head tries it against torch's own outputs; a warning says if they differ.
    """
    if not _suits(head) or not has_compiler():
        return None
    from .engine import CompiledHeadEngine  # which imports numba

    if head not in _checked:
        plain = head.make_engine(vocab, target)
        _checked[head] = _same_logits(plain, CompiledHeadEngine(head, vocab), head)
    return CompiledHeadEngine(head, vocab) if _checked[head] else None


def _suits(head: Any) -> bool:
    if head.kind != EAGLE:
        return False
    layer, embedding = head.config.layer, head.embedding
    tensors = [*head.parameters(), *([] if embedding is None else [embedding])]
    widths = (layer.hidden_size, layer.intermediate_size, layer.head_dim, head.fc.in_features)
    return (
        embedding is not None
        and {t.dtype for t in tensors} in ({torch.float32}, {torch.bfloat16}, {torch.float16})
        and all(t.device.type == "cpu" and t.is_contiguous() for t in tensors)
        and all(width % UNIT == 0 for width in widths)
        and sum(t.numel() for t in tensors) <= MOST_PARAMETERS
        and layer.hidden_act == "silu"
        and not layer.mlp_bias
        and head.rotary.rope_type in STATIC_ROPE
    )


@torch.inference_mode()
def _same_logits(plain: StateReader, compiled: StateReader, head: Any) -> bool:
    """Whether both give the same logits for several tokens, and for one more after them."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(TRIED, head.fc.in_features, generator=generator)
    ids = torch.arange(TRIED + 1) % head.config.layer.vocab_size
    rows = []
    for engine in (plain, compiled):
        engine.receive(states)
        many = engine.forward(ids[:-1], keep=TRIED)
        rows.append(torch.cat([many, engine.forward(ids[-1:], keep=1)]))
    wanted, found = (each[torch.isfinite(rows[0])] for each in rows)
    if are_close(found, wanted, head.dtype):
        return True
    warnings.warn("the compiled head gave other logits; using torch's modules", stacklevel=4)
    return False
