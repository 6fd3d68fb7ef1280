"""Metadata of a model, known before its weights are read."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, GenerationConfig
from transformers.pytorch_utils import Conv1D

from ..base.errors import PairError
from ..core.ends import named_end_ids
from ..core.llama_family import is_llama_family
from ..core.model_facts import cache_argument, context_length, parameter_count, text_config
from ..core.pair import Pair
from ..core.running_states import (
    STATE_ELSEWHERE,
    has_running_states,
    pass_reads_states,
    state_bytes,
    unknown_past,
)
from .hub import cached_weights, failure_sentence, find_source, folder_weights
from .memory import LayerCache, MemoryNeed
from .source import ModelSource
from .weights import hub_options, read_tokenizer, unused_sentence, unused_weights

if TYPE_CHECKING:
    from ..core.states import DraftHead
    from .gguf.header import GgufHeader
    from .progress import Watcher

MAX_LAYERS = 10_000  # more than any model has

PROBED = 2  # tokens of the probing pass: enough to see which caches grow with the text

STATELESS = {"full_attention", "sliding_attention", "chunked_attention", "conv", "moe", "mlp"}
"""Kinds of layers whose cache can drop single tokens."""


class Caches(NamedTuple):
    """The caches of a model. Where tokens cannot be removed there are running states, which are
    restored."""

    layers: tuple[LayerCache, ...]  # those whose cache grows with the text
    rolls_back: bool  # whether tokens can be removed
    state_bytes: int = 0  # bytes of running states, 0 if unknown
    reads_states: bool = True  # whether passes over several tokens read them, as far as known
    refusal: str | None = None  # why they cannot be restored, as in `running_states.unknown_past`


@dataclass(frozen=True)
class ModelMetadata:
    """A model before its weights are read.

    model: the model on torch's `meta` device, which has shapes but no numbers. packed: the header
    of the GGUF file whose weights are used in their stored format, or None.
    """

    source: ModelSource
    model: Any
    tokenizer: Any
    packed: GgufHeader | None = None

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def quantized(self) -> bool:
        """Whether the weights in the checkpoint are quantized."""
        return getattr(self.config, "quantization_config", None) is not None

    @property
    def parameters(self) -> int:
        """The number of parameters, tied ones once."""
        return parameter_count(self.model)

    @property
    def experts(self) -> int | None:
        """The number of experts per token in a mixture of experts; None for other models."""
        used = getattr(text_config(self.model), "num_experts_per_tok", None)
        if not isinstance(used, int):
            return None
        return used

    @property
    def context(self) -> int | None:
        """The most tokens that the model sees, or None if there is no limit."""
        return context_length(self.model)

    @property
    def is_chat(self) -> bool:
        """Whether the model was tuned for its tokenizer's chat template."""
        return Pair(self.model, None, self.tokenizer).is_chat

    @cached_property
    def caches(self) -> Caches:
        # Their config tells everything, and a pass of a large model takes half a second.
        if self.packed is not None or is_llama_family(self.model):
            return configured_caches(text_config(self.model))
        return probed_caches(self.model)


@dataclass(frozen=True)
class HeadMetadata:
    """A head before its weights are read.

    structure: its `HeadConfig`, or its model on the `meta` device. need: with one cache. load:
    (loaded target, device, watcher) -> the head, in the target's dtype; raises `PairError`.
    """

    source: ModelSource
    structure: Any
    need: MemoryNeed
    load: Callable[[Any, torch.device, Watcher | None], DraftHead]


def read_metadata(name: str, tokenizer: Any = None) -> ModelMetadata:
    """Read the metadata of the model with this hub id or folder. tokenizer: instead of its own.

    Reads only configs, tokenizers and headers of weights. Raises `PairError`, with the same
    sentence as loading, if the model cannot be loaded.
    """
    source = find_source(name)
    options = hub_options(source)
    try:
        config = AutoConfig.from_pretrained(source.name, **options)
        layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
        if isinstance(layers, int) and not 0 <= layers <= MAX_LAYERS:
            # transformers would accept a negative number, and try to make a billion layers
            raise PairError(
                f"the config of {source.shown} has num_hidden_layers {layers:.6g}: it must be a "
                f"number from 0 to {MAX_LAYERS}."
            )
        model = meta_model(config)
        with contextlib.suppress(OSError):  # a few models have no such file
            offline = options["local_files_only"]
            model.generation_config = GenerationConfig.from_pretrained(
                source.name, local_files_only=offline
            )
    except PairError:
        raise
    except Exception as error:  # damaged files make transformers raise nearly anything
        raise PairError(failure_sentence(source, error)) from error
    if tokenizer is None:
        tokenizer = read_tokenizer(source)
    metadata = ModelMetadata(source, model, tokenizer)
    named_end_ids(model, metadata.tokenizer)  # raises for an invalid id
    files = cached_weights(source) if options["local_files_only"] else source
    if files.folder is not None:
        _check_weights(metadata, files)
    return metadata


def _check_weights(metadata: ModelMetadata, files: ModelSource) -> None:
    """Raise `PairError` unless the weights in `files` are those of the model."""
    model = metadata.model
    shapes = folder_weights(files)
    if metadata.quantized:
        return  # packed weights: their shapes and counts differ from the model's
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    stored_count = sum(prod(shape) for shape in shapes.values())
    needed_count = sum(parameter.numel() for parameter in model.parameters())
    known_names = shapes.keys() & expected.keys()
    has_wrong_shape = any(shapes[name] != expected[name] for name in known_names)
    if stored_count < needed_count or has_wrong_shape:
        raise PairError(
            f"{files.shown} does not hold the weights that its config.json describes: "
            "download it again."
        )
    tied = set(model.all_tied_weights_keys)
    if not expected.keys() - tied <= shapes.keys():
        return  # names that change while a model is loaded are checked then
    ignored_patterns = model._keys_to_ignore_on_load_unexpected or ()
    extra = []
    for name in shapes.keys() - expected.keys():
        if not any(re.search(pattern, name) for pattern in ignored_patterns):
            extra.append(name)
    if unused := unused_weights(model, extra):
        raise PairError(unused_sentence(metadata.source.shown, unused))


def meta_model(config: Any) -> Any:
    """The causal language model of a config on torch's `meta` device, which allocates no memory.

    Raises the errors of transformers, for example if it has no such model for the config.
    """
    stored = getattr(config, "dtype", None)
    with torch.device("meta"):
        # The fused experts of mixture models support only this dtype on this device.
        model: Any = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, trust_remote_code=False
        )
    # transformers has overwritten the config's dtype, which is that of the stored weights.
    model.config.dtype = stored
    return model.eval()


def memory_need(model: Any, layers: Sequence[LayerCache], *, copies: int = 1) -> MemoryNeed:
    """The memory that a model needs; it may be on the `meta` device."""
    return MemoryNeed(
        parameters=parameter_count(model),
        quantizable=quantizable_parameters(model),
        layers=layers,
        copies=copies,
        context=context_length(model),
    )


def quantizable_parameters(model: Any) -> int:
    """The number of weights that 8-bit and 4-bit loading shrinks.

    These are the linear layers without the output layer: bitsandbytes does not change embeddings,
    norms and fused experts.
    """
    output_layer = model.get_output_embeddings()
    count = 0
    for module in model.modules():
        if type(module) in (nn.Linear, Conv1D) and module is not output_layer:
            count += module.weight.numel()
    return count


def probed_caches(model: Any) -> Caches:
    """The caches of a `meta_model`, found by a pass, or from its config if the pass fails."""
    config = text_config(model)
    cache = DynamicCache(config=model.config)
    refusal = unknown_past(model, cache)
    if refusal is not None:
        return configured_caches(config)._replace(rolls_back=False, refusal=refusal)
    try:
        with torch.no_grad():
            ids = torch.zeros(1, PROBED, dtype=torch.long, device="meta")
            cached = {cache_argument(model): cache}
            model(input_ids=ids, use_cache=True, **cached)
    except Exception:  # some models need values, which the `meta` device does not have
        return configured_caches(config)
    layers = []
    for layer in cache.layers:
        keys = getattr(layer, "keys", None)
        values = getattr(layer, "values", None)
        if keys is not None and values is not None:
            numbers = (keys.numel() + values.numel()) // PROBED
            layers.append(LayerCache(numbers, getattr(layer, "sliding_window", None)))
    try:  # as the eager engine checks a cache in use
        rolls_back = bool(cache.is_croppable) and cache.get_seq_length() == PROBED
    except ValueError:  # no layer counts its tokens
        rolls_back = False
    if not rolls_back and has_running_states(cache):
        return _with_states(model, cache, tuple(layers), ids[0])
    return Caches(tuple(layers), rolls_back)


def _with_states(
    model: Any, cache: DynamicCache, layers: tuple[LayerCache, ...], ids: torch.Tensor
) -> Caches:
    """The caches of a model with running states. cache: after a pass over `ids`."""
    state = state_bytes(cache)
    if state == 0:
        return Caches(layers, rolls_back=False, refusal=STATE_ELSEWHERE)
    reads_states = True
    with contextlib.suppress(Exception):  # loading the model tests this again
        reads_states = pass_reads_states(model, cache, ids, len(ids))
    return Caches(layers, rolls_back=False, state_bytes=state, reads_states=reads_states)


def configured_caches(config: Any) -> Caches:
    """The caches of a language model as its config describes them."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        kind = "full_attention"
        if window:
            kind = "sliding_attention"
        kinds = [kind] * int(config.num_hidden_layers)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    numbers = 2 * heads * width
    layers = []
    for kind in kinds:
        if kind == "sliding_attention":
            layers.append(LayerCache(numbers, window))
        elif "attention" in kind:
            layers.append(LayerCache(numbers))
    return Caches(tuple(layers), rolls_back=set(kinds) <= STATELESS)
