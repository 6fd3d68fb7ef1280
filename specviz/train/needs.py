"""The memory that a training of a draft or a head needs, estimated before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import PairError
from ..pairs.heads.eagle import Head
from ..pairs.memory import DeviceMemory, memory_need
from ..pairs.metadata import ModelMetadata
from ..pairs.pair import logit_width, parameter_count, text_config
from ..pairs.sizes import shown_bytes

LAYER_BYTES = 34
"""Bytes of activations that the backward pass needs in one layer, for each token and each of the
layer's widths, in 16 bits with fused attention (Korthikanti et al. 2022, arXiv 2205.05198, section
4.1); twice as many in fp32."""
LOGIT_COPIES = 6
"""Copies in fp32 of the logits of a forward pass at the peak: of both models as they are, as
logarithms of probabilities, and of two gradients."""


@dataclass(frozen=True)
class DistillationNeed:
    """Bytes by part.

    target: its weights. draft: its weights in fp32. optimizer: gradients, and two averages for each
    weight. writing: the cache of the texts that are written at once. learning: activations and
    logits of a forward pass. The last two are never needed at the same time.
    """

    target: int
    draft: int
    optimizer: int
    writing: int
    learning: int

    @property
    def total(self) -> int:
        """The most bytes at one time."""
        return self.target + self.draft + self.optimizer + max(self.writing, self.learning)

    def __str__(self) -> str:
        return (
            f"{shown_bytes(self.total)}: target {shown_bytes(self.target)}, draft "
            f"{shown_bytes(self.draft)}, gradients and optimizer {shown_bytes(self.optimizer)}, "
            f"the larger of writing {shown_bytes(self.writing)} and learning "
            f"{shown_bytes(self.learning)}"
        )


def distillation_need(
    target: ModelMetadata,
    draft: ModelMetadata,
    *,
    precision: str,
    rows: int,
    width: int,
    tokens: int,
) -> DistillationNeed:
    """precision: of the target's weights. rows, width: texts written at once, and tokens of each.
    tokens: of a forward pass in training."""
    own = parameter_count(draft.model)
    need = memory_need(target.model, target.caches, copies=rows)
    config = draft.config.get_text_config()
    size = 2 if precision == "float32" else 1
    layers = size * LAYER_BYTES * config.num_hidden_layers * config.hidden_size
    logits = 4 * LOGIT_COPIES * max(map(logit_width, (target.model, draft.model)))
    return DistillationNeed(
        target=need.bytes(precision, 0),
        draft=4 * own,
        optimizer=12 * own,
        writing=need.cached(precision, width),
        learning=tokens * (layers + logits),
    )


def head_need(
    target: Any, head: Head, *, rows: int, width: int, tokens: int, steps: int
) -> DistillationNeed:
    """For a head on a loaded target. rows, width: texts written at once, and tokens of each.
    tokens: of a forward pass in training; steps: of its chains."""
    config, own = text_config(target), parameter_count(head)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cached = 2 * config.num_hidden_layers * heads * head_dim * target.dtype.itemsize
    layer = 2 * LAYER_BYTES * config.hidden_size
    return DistillationNeed(
        target=sum(one.numel() * one.element_size() for one in target.parameters()),
        draft=4 * own,
        optimizer=12 * own,
        writing=rows * width * cached,
        learning=tokens * (steps * layer + config.num_hidden_layers * 2 * config.hidden_size),
    )


def check_need(need: DistillationNeed, place: DeviceMemory, loaded: int = 0) -> None:
    """Raise `PairError` with the numbers if `need` is more than the device has free. loaded: bytes
    of it that are there already."""
    if need.total - loaded > place.free:
        raise PairError(
            f"not enough memory: the training needs about {need}, and {place.device.type} has "
            f"{shown_bytes(place.free)} free; use smaller --micro-tokens or --write-rows, or a "
            "smaller model."
        )
