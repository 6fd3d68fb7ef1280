"""The packed form: Llama models on a CPU in fp32, without the library's per-call overhead.

Same weights and arithmetic as transformers' LlamaForCausalLM, arranged for one short pass at a
time (`layout`, `products`) and a growing cache whose rollback is a length (`passes`). Here is
decided which models may run so, and checked that they then give their own logits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch

from ...models.pair import context_length, parameter_count
from .forward import PackedEngine
from .matmul import PACKED_ROWS, threads
from .weights import PackedModel

MOST_PARAMETERS = 300_000_000  # the layouts cost two copies of the weights beside the model's own
TOLERANCE = 1e-3  # logits against the model's own; fp32 differs by about 1e-5
STATIC_ROPE = ("default", "linear", "llama3", "yarn")

Stamp: TypeAlias = tuple[object, ...]

_plain: ContextVar[bool] = ContextVar("plain", default=False)
_packed: WeakKeyDictionary[Any, tuple[Stamp, PackedModel | None]] = WeakKeyDictionary()


@contextmanager
def plain_form() -> Iterator[None]:
    """Within, every model runs as it is: what comparisons on equal modules need."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def in_plain_form() -> bool:
    """Whether this is within `plain_form`."""
    return _plain.get()


def packed_model(model: Any, vocab: int) -> PackedModel | None:
    """`model` in this module's layout, or None if it is of another kind or in `plain_form`.

    The layout is made once per model and checked against the model's own logits; where they
    differ, a warning says so and the model runs as it is.
    """
    if _plain.get():
        return None
    # Weights that were replaced or changed in place since must be laid out anew, and other
    # threads want another layout.
    stamp = (vocab, threads(), *((p.data_ptr(), p._version) for p in model.parameters()))
    if model not in _packed or _packed[model][0] != stamp:
        _packed[model] = (stamp, _checked(model, vocab) if _suits(model) else None)
    return _packed[model][1]


def _suits(model: Any) -> bool:
    if model.config.model_type != "llama" or model.device.type != "cpu":
        return False
    # Only here: it brings half of transformers along, and the page's start need not wait for it.
    from transformers import LlamaForCausalLM

    if type(model) is not LlamaForCausalLM:
        return False
    parameters = list(model.parameters())
    plain = all(p.dtype == torch.float32 and p.device.type == "cpu" for p in parameters)
    linears = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    untouched = all(type(m) is torch.nn.Linear and not m._forward_hooks for m in linears)
    config = model.config
    return (
        plain
        and untouched
        and parameter_count(model) <= MOST_PARAMETERS
        and bool(context_length(model))
        and config.hidden_act == "silu"
        and getattr(model.model.rotary_emb, "rope_type", "default") in STATIC_ROPE
    )


@torch.inference_mode()
def _checked(model: Any, vocab: int) -> PackedModel | None:
    count = min(PACKED_ROWS + 1, context_length(model) or 0)
    ids = torch.arange(count) % vocab
    try:
        packed = PackedModel(model, vocab)
        engine = PackedEngine(packed)
        # One pass of many tokens, then the last of them again alone: both kernels are seen.
        many = engine.forward(ids, count)
        engine.rollback(count - 1)
        one = engine.forward(ids[-1:], 1)
    except RuntimeError as error:
        warnings.warn(
            f"the packed form cannot run here ({error}); using the plain one", stacklevel=2
        )
        return None
    wanted = model(input_ids=ids.unsqueeze(0), use_cache=False).logits[0, :, :vocab]
    close = all(
        torch.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)
        for ours, theirs in ((many, wanted), (one, wanted[-1:]))
    )
    if not close and torch.isfinite(wanted).all():
        warnings.warn("the packed form gave other logits; using the plain one", stacklevel=2)
    return packed if close else None
