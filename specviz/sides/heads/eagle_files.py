"""Reading of published heads: EAGLE-3 checkpoints, and the format of `speculators`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from torch import Tensor
from transformers import LlamaConfig, PretrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from ...base.errors import PairError, ran_out_of_memory
from ...core.model_facts import parameter_count, text_config
from ...files import hub
from ...files.memory import LayerCache, MemoryNeed
from ...files.metadata import HeadMetadata
from ...files.progress import Watcher, watched
from ...files.source import ModelSource
from ...files.weights import hub_options
from .eagle import Head, HeadConfig, check_head

FILES = ("config.json", "*.safetensors", "*.safetensors.index.json")
IGNORED = ("t2d", "verifier_norm.weight", "verifier_lm_head.weight", "rotary_emb.inv_freq")
EMBEDDING = "embed_tokens.weight"
UNKNOWN_PARTS = ("fc_norm", "norm_output")
"""Options in the format of `speculators` that change the computation and are not supported
here."""


def config_values(name: str) -> dict[str, Any]:
    """The values in config.json of a hub id or folder; empty if it cannot be read. Reading it as a
    model then raises the error."""
    try:
        source = hub.find_source(name)
        return dict(PretrainedConfig.get_config_dict(source.name, **hub_options(source))[0])
    except Exception:  # the hub's client raises errors of many kinds
        return {}


def read_head(source: ModelSource, values: dict[str, Any], target: Any) -> HeadMetadata:
    """The metadata of the head with this config. target: the model that it is for, perhaps on the
    `meta` device.

    Raises `PairError` if the config is damaged, of an unknown kind, or made for another target.
    """
    layer = values.get("transformer_layer_config") or values
    unknown = [name for name in UNKNOWN_PARTS if values.get(name)]
    if layer.get("num_hidden_layers", 1) != 1:
        unknown.append(f"{layer['num_hidden_layers']} layers")
    if unknown:
        raise PairError(
            f"{source.shown} is a head with {' and '.join(unknown)}, which specviz does not "
            "support: choose an EAGLE-3 head with one layer."
        )
    try:
        config = HeadConfig(
            layer=_layer_config(layer),
            target_width=values.get("target_hidden_size") or int(layer["hidden_size"]),
            states=_states(values, text_config(target).num_hidden_layers),
            draft_vocab=int(values.get("draft_vocab_size") or layer["vocab_size"]),
            norm_before_residual=bool(values.get("norm_before_residual", False)),
            norm_before_fc=bool(values.get("norm_before_fc", False)),
            head_norms=layer.get("model_type") == "qwen3",
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PairError(
            f"{source.shown} has a damaged or incomplete config.json: download it again."
        ) from error
    check_head(config, target)
    with torch.device("meta"):
        parameters = parameter_count(Head(config))
    cache = LayerCache(config.sizes.cached)
    need = MemoryNeed(parameters, 0, (cache,))
    return HeadMetadata(source, config, need, partial(_loaded, source, config))


LAYER_FIELDS = (
    "attention_bias",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "mlp_bias",
    "num_attention_heads",
    "num_key_value_heads",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "vocab_size",
)
"""The fields of a decoder layer, by their names in `LlamaConfig`."""


def _layer_config(layer: dict[str, Any]) -> LlamaConfig:
    # Other fields of a config, such as a dtype or flags of trainers, do not concern the layer.
    fields = {name: layer[name] for name in LAYER_FIELDS if layer.get(name) is not None}
    fields.setdefault("num_key_value_heads", fields["num_attention_heads"])
    return LlamaConfig(**fields, num_hidden_layers=1)


def _states(values: dict[str, Any], layers: int) -> tuple[int, ...]:
    """The numbers of the target's layers after which its states are read.

    The default is the inputs of the layers 2, n / 2 and n - 3, counted from 0 (EAGLE-3's code).
    `speculators` counts the layers that have run; `eagle_config` names the layers themselves,
    counted from 0, whose outputs are read.
    """
    counted = values.get("eagle_aux_hidden_state_layer_ids")
    named = (values.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    if counted:
        return tuple(int(n) for n in counted)
    if named:
        return tuple(int(n) + 1 for n in named)
    return 2, layers // 2, layers - 3


def load_head(name: str, target: Any, device: torch.device) -> Head:
    """The head with this hub id or folder, for a loaded target. Raises `PairError`."""
    source = hub.find_source(name)
    config = read_head(source, config_values(name), target).structure
    return _loaded(source, config, target, device, None)


def _loaded(
    source: ModelSource,
    config: HeadConfig,
    target: Any,
    device: torch.device,
    on_progress: Watcher | None,
) -> Head:
    """Load a head. Raises `PairError` if it is damaged, made for another target, or has no
    safetensors."""
    dtype = target.dtype if target.dtype.is_floating_point else torch.bfloat16
    weights = _weights(_downloaded(source, on_progress))
    if EMBEDDING in weights:
        embedding = weights.pop(EMBEDDING).to(device, dtype)
    else:
        embedding = _embedding_of(target, dtype).to(device)
    needed_shape = (config.layer.vocab_size, config.layer.hidden_size)
    if tuple(embedding.shape) != needed_shape:
        raise PairError(
            f"{source.shown} needs an embedding of shape {list(needed_shape)} and the embedding "
            f"has shape {list(embedding.shape)}: choose a head that was trained for this target."
        )
    if config.draft_vocab == config.layer.vocab_size:
        weights.setdefault("d2t", torch.zeros(config.draft_vocab, dtype=torch.long))
    with torch.device("meta"):
        head = Head(config)
    try:
        for name, tensor in weights.items():
            weights[name] = tensor.to(device, torch.long if name == "d2t" else dtype)
        head.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        if ran_out_of_memory(error):
            raise
        raise PairError(
            f"{source.shown} does not contain the weights of the EAGLE-3 head that its config.json "
            "describes: download it again, or choose another head."
        ) from error
    _check_targets(source, head)
    head.rotary = LlamaRotaryEmbedding(config.layer).to(device)
    head.embedding = embedding
    head.name_or_path = source.name
    return head.eval()


def _check_targets(source: ModelSource, head: Head) -> None:
    """Raise `PairError` unless each token of a head is a different token of the target."""
    targets = head.targets
    in_range = bool(((targets >= 0) & (targets < head.config.layer.vocab_size)).all())
    are_unique = len(targets.unique()) == len(targets)
    if not in_range or not are_unique:
        raise PairError(
            f"{source.shown} maps its tokens to ids outside the target's vocabulary, or several "
            "tokens to one id: download it again."
        )


def _embedding_of(target: Any, dtype: torch.dtype) -> Tensor:
    """The target's table [vocab, width]; a packed one is unpacked into `dtype`."""
    table = target.get_input_embeddings()
    if hasattr(table, "packed_as"):
        unpacked: Tensor = table.unpacked().to(dtype)
        return unpacked
    weight: Tensor = table.weight.detach()
    return weight


def _downloaded(source: ModelSource, on_progress: Watcher | None) -> ModelSource:
    """The source with a local folder for its files."""
    if source.folder is not None:
        return source
    hub.safe_files(source)
    try:
        with watched(on_progress, source.shown) as options:
            folder = snapshot_download(
                source.name,
                allow_patterns=list(FILES),
                local_files_only=not hub.hub_is_reachable(),
                **options,
            )
    except Exception as error:  # the hub's client raises errors of many kinds
        raise PairError(hub.failure_sentence(source, error)) from error
    return ModelSource(source.name, Path(folder))


def _weights(source: ModelSource) -> dict[str, Tensor]:
    """The tensors of a folder, by their names in `Head`."""
    weights = {}
    tensors = hub.each_weight(source, lambda file, name: file.get_tensor(name))
    for published_name, tensor in tensors.items():
        name = re.sub(r"^layers\.0\.", "midlayer.", published_name.removeprefix("model."))
        if name not in IGNORED:
            weights[name] = tensor
    return weights
