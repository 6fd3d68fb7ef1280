"""All that can be known of a model without its weights: config, tokenizer, shapes, what its cache
holds and whether that can be rolled back."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    GenerationConfig,
)
from transformers.pytorch_utils import Conv1D

from ..errors import PairError
from .hub import Source, find_source, folder_weights, hub_options, why_not
from .pair import text_config

# What a config says if its weights were quantized when they were saved.
QUANTIZATION = "quantization_config"

PROBED = 2  # tokens of the probing pass: enough to tell what grows with the text

STATELESS = {"full_attention", "sliding_attention", "chunked_attention", "conv", "moe", "mlp"}
"""Kinds of layers whose cache can forget single tokens."""


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps. numbers: per token. window: the most tokens kept; None is all."""

    numbers: int
    window: int | None


@dataclass(frozen=True)
class Caches:
    """What a model keeps of the text that it has read.

    layers: those that keep something per token. rolls_back: whether tokens can be forgotten.
    """

    layers: tuple[LayerCache, ...]
    rolls_back: bool


@dataclass(frozen=True)
class Blueprint:
    """A model without weights. model: its shapes, on torch's `meta` device."""

    source: Source
    model: Any
    tokenizer: Any

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def quantized(self) -> bool:
        """Whether the checkpoint's own weights are quantized."""
        return getattr(self.config, QUANTIZATION, None) is not None

    @cached_property
    def caches(self) -> Caches:
        return probed_caches(self.model)


def read_blueprint(name: str) -> Blueprint:
    """The blueprint of a hub id or a folder; reads configs, tokenizers and headers only.

    Raises `PairError` with the sentence that loading would fail with.
    """
    source = find_source(name)
    options = hub_options(source)
    try:
        config = AutoConfig.from_pretrained(source.name, **options)
        model = hollow_model(config)
        _add_generation_config(model, source, options)
    except Exception as error:  # damaged files make transformers raise nearly anything
        raise PairError(why_not(source, error)) from error
    blueprint = Blueprint(source, model, read_tokenizer(source))
    if source.folder is not None:
        _check_weights(blueprint)
    return blueprint


def read_tokenizer(source: Source) -> Any:
    """Its tokenizer. Raises `PairError`."""
    try:
        return AutoTokenizer.from_pretrained(source.name, **hub_options(source))
    except Exception as error:
        raise PairError(why_not(source, error)) from error


def _add_generation_config(model: Any, source: Source, options: dict[str, Any]) -> None:
    # It names the ids that end a text. Few models come without.
    offline = {"local_files_only": options["local_files_only"]}
    with contextlib.suppress(OSError):
        model.generation_config = GenerationConfig.from_pretrained(source.name, **offline)


def _check_weights(blueprint: Blueprint) -> None:
    weights = folder_weights(blueprint.source)
    if blueprint.quantized:
        return  # packed: neither shapes nor counts are the model's
    wanted = {name: tuple(t.shape) for name, t in blueprint.model.state_dict().items()}
    shown = blueprint.source.shown
    for name, shape in weights.shapes.items():
        if wanted.get(name, shape) != shape:
            raise PairError(
                f"{shown} does not fit its own config.json: {name} is {list(shape)} instead of "
                f"{list(wanted[name])}; download it again."
            )
    missing = sum(p.numel() for p in blueprint.model.parameters()) - weights.numbers
    if missing > 0:
        raise PairError(
            f"{shown} lacks {missing:,} of the numbers that its config.json asks for: download "
            "it again."
        )


def hollow_model(config: Any) -> Any:
    """The causal language model of a config, on torch's `meta` device: shapes and no numbers.

    Raises whatever transformers raises for a config that it has no such model for.
    """
    with torch.device("meta"):
        # Fused experts of mixtures know no other dtype on this device.
        model: Any = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, trust_remote_code=False
        )
    return model.eval()


def shrinkable_parameters(model: Any) -> int:
    """The weights that 8-bit and 4-bit loading makes smaller: linear layers, but for the head.

    bitsandbytes leaves embeddings, norms and fused experts as they are.
    """
    head = model.get_output_embeddings()
    layers = (m for m in model.modules() if type(m) in (nn.Linear, Conv1D) and m is not head)
    return sum(layer.weight.numel() for layer in layers)


def probed_caches(model: Any) -> Caches:
    """The caches of a `hollow_model`, by a pass over it; by its config where that fails."""
    config = text_config(model)
    cache = DynamicCache(config=model.config)
    try:
        with torch.inference_mode():
            ids = torch.zeros(1, PROBED, dtype=torch.long, device="meta")
            model(input_ids=ids, past_key_values=cache, use_cache=True)
    except Exception:  # a pass may depend on values, and there are none
        return _configured_caches(config)
    return Caches(tuple(_layer_caches(cache)), _rolls_back(cache))


def _layer_caches(cache: Any) -> list[LayerCache]:
    found = []
    for layer in cache.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if keys is not None and values is not None:
            numbers = (keys.numel() + values.numel()) // PROBED
            found.append(LayerCache(numbers, getattr(layer, "sliding_window", None)))
    return found


def _rolls_back(cache: Any) -> bool:
    # The very questions that the engine asks of a cache in use.
    try:
        return bool(cache.is_croppable) and cache.get_seq_length() == PROBED
    except ValueError:  # no layer counts its tokens
        return False


def _configured_caches(config: Any) -> Caches:
    layers = int(config.num_hidden_layers)
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    kinds = kinds or ["sliding_attention" if window else "full_attention"] * layers
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kept = tuple(
        LayerCache(2 * heads * width, window if kind == "sliding_attention" else None)
        for kind in kinds
        if "attention" in kind
    )
    return Caches(kept, set(kinds) <= STATELESS)
