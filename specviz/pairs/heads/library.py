"""Heads that transformers itself can run: a target's own multi-token prediction layers, and
assistants of Gemma 4.

An assistant has no keys and values of its own: each of its layers looks at those that the target's
last layer of the same kind has left. So it reads no prompt, and nothing of it is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from ...core.model_facts import logits_device, parameter_count, text_config
from ...core.states import StateReader
from ...core.truncated import FINAL
from ...errors import PairError, ran_out_of_memory
from ..hub import failure_sentence, folder_weights
from ..memory import MemoryNeed
from ..metadata import HeadMetadata, ModelMetadata, configured_caches
from ..progress import Watcher
from ..spec import OWN_LAYERS
from ..weights import LoadOptions, ModelSource, hub_options, load_model
from .eagle import check_fit

if TYPE_CHECKING:
    from ...core.protocols import StateEngine


class MtpHead:
    """The multi-token prediction layers of a loaded target.

    model: transformers' `MtpModel`, whose embeddings and head are the target's. count: of layers.
    """

    kind = "mtp"
    states = (FINAL,)

    def __init__(self, model: Any, target: Any) -> None:
        self.model, self.count = model, len(model.layers)
        self.width = int(text_config(target).hidden_size)
        self.config = target.config
        self.name_or_path = f"{target.name_or_path}, MTP layers"
        self.parameters = partial(own_parameters, model)
        first = next(self.parameters())
        self.device, self.dtype = first.device, first.dtype
        self.step_parts = model.layers[-1], model.shared_head

    def make_engine(self, vocab: int, target: StateEngine) -> StateReader:
        """Transformers' modules with an empty cache."""
        from ...sides.heads.drafter import MtpEngine

        return MtpEngine(self, vocab)

    def check(self, target: Any) -> None:
        """Raise `PairError` unless these layers belong to the target."""
        if self.model.embed_tokens is not target.get_input_embeddings():
            raise PairError("these multi-token prediction layers are those of another target.")


class Assistant:
    """An assistant with its weights. model: of transformers. target: what it drafts for."""

    kind = "assistant"
    states = (FINAL,)

    def __init__(self, model: Any, target: Any) -> None:
        self.model, self.config = model, model.config
        self.name_or_path = model.name_or_path
        self.embedding = target.get_input_embeddings()
        self.device, self.step_parts = model.device, (model,)
        self.parameters = model.parameters

    def make_engine(self, vocab: int, target: StateEngine) -> StateReader:
        """Beside the engine of its target, whose cache it reads."""
        from ...sides.heads.drafter import AssistantEngine

        return AssistantEngine(self, vocab, target)

    def check(self, target: Any) -> None:
        """Raise `PairError` unless it fits the target."""
        check_assistant(self.model, target)


def _load_mtp(source: ModelSource, target: Any, *_: object) -> MtpHead:
    from transformers.modeling_layers import MtpModel

    try:
        model = MtpModel.from_pretrained(target, device_map={"": logits_device(target)})
    except Exception as error:  # damaged files can make transformers raise any error
        if ran_out_of_memory(error):
            raise
        raise PairError(_lacking_sentence(source.shown)) from error
    return MtpHead(model.eval(), target)


def _load_assistant(
    source: ModelSource,
    config: Any,
    target: Any,
    device: torch.device,
    on_progress: Watcher | None,
) -> Assistant:
    dtype = target.dtype if target.dtype.is_floating_point else torch.bfloat16
    options = LoadOptions(dtype=dtype, device=device)
    return Assistant(load_model(source, options, on_progress, config), target)


def own_parameters(model: Any) -> Iterator[nn.Parameter]:
    """The parameters of an `MtpModel` without those that are the target's."""
    shared = {id(p) for part in (model.embed_tokens, model.shared_head) for p in part.parameters()}
    return (p for p in model.parameters() if id(p) not in shared)


def read_mtp(target: ModelMetadata) -> HeadMetadata:
    """The metadata of the target's layers. Raises `PairError` if it has none that can be run."""
    shown, model = target.source.shown, _runnable(target)
    if model is None:
        raise PairError(
            f"{shown} has no multi-token prediction layers that transformers "
            f"{transformers.__version__} runs: it drops those of many types of models, and reads "
            f"none from quantized weights. Name a draft or a head instead of '{OWN_LAYERS}'."
        )
    own = type(model).get_mtp_weights_regex(target.model)
    if target.source.folder and not any(map(own.search, folder_weights(target.source))):
        raise PairError(_lacking_sentence(shown))
    parameters = sum(p.numel() for p in own_parameters(model))
    need = MemoryNeed(parameters, 0, configured_caches(model.config).layers)
    return HeadMetadata(target.source, model, need, partial(_load_mtp, target.source))


def _runnable(target: ModelMetadata) -> Any:
    """The `MtpModel` of a target on the `meta` device, or None if transformers cannot make it."""
    try:
        from transformers.modeling_layers import MtpModel

        MtpModel.get_mtp_weights_regex(target.model)
        with torch.device("meta"):
            model = MtpModel(target.model, text_config(target.model).num_mtp_layers)
    except Exception:  # each version and family has its own way to say that it cannot
        return None
    return model if len(model.layers) and not target.quantized else None


def _lacking_sentence(shown: str) -> str:
    return (
        f"{shown} lacks weights of its multi-token prediction layers, though its config names "
        "them: choose the original checkpoint, or another drafter."
    )


def read_assistant(source: ModelSource, target: Any) -> HeadMetadata:
    """The metadata of an assistant. target: the model that it is for, perhaps on the `meta` device.

    Raises `PairError` if it is damaged, or made for another target.
    """
    try:
        config = buildable(AutoConfig.from_pretrained(source.name, **hub_options(source)))
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except Exception as error:  # damaged files make transformers raise nearly anything
        raise PairError(failure_sentence(source, error)) from error
    check_assistant(model, target)
    need, load = MemoryNeed(parameter_count(model), 0), partial(_load_assistant, source, config)
    return HeadMetadata(source, model, need, load)


def buildable(config: Any) -> Any:
    """`config` of an assistant, of which this version of transformers can make a model.

    In 5.23.0 the layers ask `kv_sharing_modes` of the text config which of them share a cache, and
    it raises an error if all do, as they do here. Its answer for these layers is known.
    """
    kind = type(config.text_config)
    if hasattr(kind, "kv_sharing_modes"):
        modes = property(lambda own: ["reuse"] * own.num_hidden_layers)
        # The name is what transformers finds the class of the model by.
        made = type(kind.__name__, (kind,), {"kv_sharing_modes": modes})
        config.text_config.__class__ = made
    return config


def check_assistant(model: Any, target: Any) -> None:
    """Raise `PairError` unless an assistant fits the target; both may be on the `meta` device."""
    kind, wanted = text_config(target).model_type, text_config(model).model_type
    if kind != wanted:
        raise PairError(
            f"the assistant reads the keys of a model of type {wanted} and the target is of type "
            f"{kind}: choose the assistant of this target."
        )
    check_fit(target, model.config.backbone_hidden_size, text_config(model).vocab_size, "assistant")
