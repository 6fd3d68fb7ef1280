"""Assistants of Gemma 4: small models that read the target's last state and its cache.

An assistant has no keys and values of its own: each of its layers looks at those that the target's
last layer of the same kind has left. So it reads no prompt, and nothing of it is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from ...core.states import StateReader
from ...errors import PairError
from ..hub import failure_sentence, find_source
from ..pair import logit_width, parameter_count, text_config
from ..progress import Watcher
from ..sizes import MemoryNeed
from ..truncated import FINAL
from ..weights import LoadOptions, ModelSource, hub_options, load_model
from .eagle_files import config_values

if TYPE_CHECKING:
    from ...core.protocols import StateEngine

TYPES = ("gemma4_assistant", "gemma4_unified_assistant")


class Assistant:
    """An assistant with its weights. model: of transformers. target: the model that it drafts
    for."""

    kind = "assistant"
    states = (FINAL,)

    def __init__(self, model: Any, target: Any) -> None:
        self.model, self.config = model, model.config
        self.name_or_path = model.name_or_path
        self.embedding = target.get_input_embeddings()

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    def make_engine(self, vocab: int, target: StateEngine) -> StateReader:
        """Beside the engine of its target, whose cache it reads."""
        from ...sides.heads import AssistantEngine

        return AssistantEngine(self, vocab, target)

    @property
    def step_parts(self) -> tuple[nn.Module, ...]:
        """The modules that a step along a chain runs."""
        return (self.model,)

    def parameters(self) -> Iterator[nn.Parameter]:
        found: Iterator[nn.Parameter] = self.model.parameters()
        return found

    def check(self, target: Any) -> None:
        """Raise `PairError` unless it fits the target."""
        check_assistant(self.model, target)


@dataclass(frozen=True)
class AssistantMetadata:
    """What is known of an assistant before its weights are read. config: of transformers."""

    source: ModelSource
    config: Any

    @cached_property
    def model(self) -> Any:
        """The assistant on the `meta` device."""
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(self.config)

    @property
    def need(self) -> MemoryNeed:
        """The memory that it needs: weights alone."""
        return MemoryNeed(parameter_count(self.model), 0)

    def load(
        self, target: Any, device: torch.device, on_progress: Watcher | None = None
    ) -> Assistant:
        """It with its weights, for a loaded target, in the target's dtype. Raises `PairError`."""
        dtype = target.dtype if target.dtype.is_floating_point else torch.bfloat16
        options = LoadOptions(dtype=dtype, device=device)
        return Assistant(load_model(self.source, options, on_progress, self.config), target)


def is_assistant(name: str) -> bool:
    """Whether a hub id or folder holds an assistant."""
    return (config_values(name) or {}).get("model_type") in TYPES


def read_assistant(name: str, target: Any) -> AssistantMetadata | None:
    """The metadata of the assistant with this hub id or folder, or None if it is another model.

    target: the model that it is for, perhaps on the `meta` device. Raises `PairError` if it is
    damaged, or made for another target.
    """
    if not is_assistant(name):
        return None
    source = find_source(name)
    try:
        config = AutoConfig.from_pretrained(source.name, **hub_options(source))
        found = AssistantMetadata(source, buildable(config))
        model = found.model
    except Exception as error:  # damaged files make transformers raise nearly anything
        raise PairError(failure_sentence(source, error)) from error
    check_assistant(model, target)
    return found


def buildable(config: Any) -> Any:
    """`config` of an assistant, of which this version of transformers can make a model.

    In 5.23.0 the layers ask `kv_sharing_modes` of the text config which of them share a cache, and
    it raises an error if all do, as they do here. Its answer for these layers is known.
    """
    text = config.text_config
    if asks_sharing_modes(config):
        kind = type(text)
        modes = property(lambda own: ["reuse"] * own.num_hidden_layers)
        # The name is what transformers finds the class of the model by.
        text.__class__ = type(kind.__name__, (kind,), {"kv_sharing_modes": modes})
    return config


def asks_sharing_modes(config: Any) -> bool:
    """Whether this version of transformers asks the config which layers share a cache."""
    return hasattr(type(config.text_config), "kv_sharing_modes")


def check_assistant(model: Any, target: Any) -> None:
    """Raise `PairError` unless an assistant fits the target; both may be on the `meta` device."""
    own, theirs = model.config, text_config(target)
    if own.backbone_hidden_size != theirs.hidden_size:
        raise PairError(
            f"the assistant reads hidden states of width {own.backbone_hidden_size} and the "
            f"target's have width {theirs.hidden_size}: choose the assistant of this target."
        )
    if text_config(model).vocab_size != logit_width(target):
        raise PairError(
            f"the assistant has a vocabulary of {text_config(model).vocab_size:,} tokens and the "
            f"target one of {logit_width(target):,}: choose the assistant of this target."
        )
    # By kind of attention: heads and width of the keys that the target's last such layer keeps.
    kept: dict[str, tuple[int, int]] = {}
    for layer in target.get_decoder().layers:
        attention: Any = getattr(layer, "self_attn", None)
        if hasattr(attention, "k_proj") and hasattr(attention, "layer_type"):
            width = attention.head_dim
            kept[attention.layer_type] = attention.k_proj.out_features // width, width
    for layer in model.model.layers:
        attention = layer.self_attn
        heads = attention.q_proj.out_features // attention.head_dim
        wanted = heads // attention.num_key_value_groups, attention.head_dim
        if kept.get(attention.layer_type) != wanted:
            raise PairError(
                "the assistant's layers cannot read the keys that the target keeps: choose the "
                "assistant of this target."
            )
