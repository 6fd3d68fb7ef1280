"""The memory that the training of a draft or a head needs, estimated before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..base.errors import PairError
from ..core.model_facts import logit_width, parameter_count, text_config
from ..files.memory import DeviceMemory, MemoryNeed, shown_bytes
from ..files.metadata import ModelMetadata, configured_caches, memory_need
from ..sides.heads.eagle import Head

LAYER_BYTES = 34
"""Bytes of activations that the backward pass needs in one layer, for each token and each unit of
the layer's width, in 16 bits with fused attention (Korthikanti et al. 2022, arXiv 2205.05198,
section 4.1); twice as many in fp32."""
LOGIT_COPIES = 6
"""Copies in fp32 of a forward pass's logits at the peak: those of both models, their
log-probabilities, and two gradients."""


@dataclass(frozen=True)
class TrainingNeed:
    """The needed bytes, by part. Writing and learning never happen at the same time."""

    precision: str  # of the target's weights
    target: int  # its weights
    learner: int  # weights in fp32, gradients, and two averages for each weight
    writing: int  # the cache of the texts that are written at once
    learning: int  # activations and logits of a forward pass

    @property
    def total(self) -> int:
        """The peak in bytes."""
        weights = self.target + self.learner
        return weights + max(self.writing, self.learning)

    def __str__(self) -> str:
        return (
            f"{shown_bytes(self.total)}: target in {self.precision} {shown_bytes(self.target)}, "
            f"trained model with gradients and optimizer {shown_bytes(self.learner)}, and the "
            f"larger of writing {shown_bytes(self.writing)} and training "
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
) -> TrainingNeed:
    """The need of a distillation. precision: of the target's weights. rows, width: texts written
    at once, and tokens of each. tokens: of a forward pass in training."""
    config = draft.config.get_text_config()
    layer_bytes = LAYER_BYTES
    if precision == "float32":
        layer_bytes *= 2
    layers = layer_bytes * config.num_hidden_layers * config.hidden_size
    vocab = max(logit_width(target.model), logit_width(draft.model))
    logits = 4 * LOGIT_COPIES * vocab
    learning = tokens * (layers + logits)
    need = memory_need(target.model, target.caches.layers, copies=rows)
    return _need(need, precision, draft.model, width, learning=learning)


def head_need(
    target: Any, head: Head, *, rows: int, width: int, tokens: int, steps: int
) -> TrainingNeed:
    """The need of a head's training on a loaded target. steps: of its chains; the other arguments
    as in `distillation_need`."""
    config = text_config(target)
    precision = str(target.dtype).removeprefix("torch.")
    states = 2 * config.num_hidden_layers
    layers = (steps * 2 * LAYER_BYTES + states) * config.hidden_size
    logits = 4 * LOGIT_COPIES * head.config.draft_vocab
    learning = tokens * (layers + logits)
    caches = configured_caches(config)
    need = memory_need(target, caches.layers, copies=rows)
    return _need(need, precision, head, width, learning=learning)


def _need(
    target: MemoryNeed, precision: str, learner: Any, width: int, *, learning: int
) -> TrainingNeed:
    """The need of a training. target: with the caches of the texts that it writes at once, of
    `width` tokens."""
    return TrainingNeed(
        precision=precision,
        target=target.bytes(precision, 0),
        learner=16 * parameter_count(learner),
        writing=target.cached(precision, width),
        learning=learning,
    )


def check_need(need: TrainingNeed, memory: DeviceMemory, loaded: int = 0) -> None:
    """Print the need. Raises `PairError` if it exceeds the free memory of the device. loaded:
    bytes of it that are loaded already."""
    device_type = memory.device.type
    print(f"{device_type}, memory needed: about {need}", flush=True)
    if need.total - loaded > memory.free:
        raise PairError(
            f"not enough memory: the training needs about {need}, and {device_type} has "
            f"{shown_bytes(memory.free)} free; use smaller --micro-tokens or --write-rows, or a "
            "smaller model."
        )
