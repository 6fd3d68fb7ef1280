"""Assistants of Gemma 4, which transformers itself runs: files and engine.

An assistant has no keys and values of its own: each of its layers reads those of the target's last
layer of the same kind. So it reads no prompt and needs no rollback.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from ...base.errors import PairError
from ...core.eager import EagerEngine, memory_limited
from ...core.layers import FINAL
from ...core.model_facts import parameter_count, text_config
from ...core.states import StateReader
from ...files.hub import failure_sentence
from ...files.memory import MemoryNeed
from ...files.metadata import HeadMetadata
from ...files.progress import Watcher
from ...files.source import ModelSource
from ...files.weights import LoadOptions, hub_options, load_model
from .eagle import check_fit

if TYPE_CHECKING:
    from ...core.protocols import StateEngine


class Assistant:
    """An assistant with its weights. model: as transformers loads it. target: the model that it
    drafts for."""

    kind = "assistant"
    states = (FINAL,)

    def __init__(self, model: Any, target: Any) -> None:
        self.model = model
        self.config = model.config
        self.name_or_path = model.name_or_path
        self.embedding = target.get_input_embeddings()
        self.device = model.device
        self.step_parts = (model,)
        self.parameters = model.parameters

    def make_engine(self, vocab: int, target_engine: StateEngine) -> StateReader:
        """Make an engine that reads the cache of the target's engine."""
        return AssistantEngine(self, vocab, target_engine)

    def check(self, target: Any) -> None:
        """Raise `PairError` unless it fits the target."""
        check_assistant(self.model, target)


class AssistantEngine(StateReader):
    """An assistant of Gemma 4 with the engine of its target.

    All drafts of a chain are made at the position of the text's last token, because the target's
    cache has none of the drafts. A step reads the embedding of the token before, and the target's
    state that predicted it; further along the chain, its own output instead.
    """

    def __init__(self, assistant: Assistant, vocab: int, target: StateEngine) -> None:
        super().__init__(assistant.device, vocab)
        assert isinstance(target, EagerEngine)  # no other engine runs a Gemma 4
        self._assistant = assistant
        self._target = target
        self._read = 0  # tokens that the target has read
        self._drafted = 0  # tokens of the chain that this engine has read
        self._state = torch.empty(0)

    @property
    def length(self) -> int:
        return self._read + self._drafted

    def receive(self, states: Tensor) -> None:
        if len(states):
            self._read += len(states)
            self._state = states[-1:]

    def prefill(self, ids: Tensor, states: Tensor) -> None:
        self.receive(states)

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        with memory_limited():
            embedded = self._assistant.embedding(ids[None])  # [1, 1, width]
            state = self._state[None].to(embedded)
            inputs = torch.cat([embedded, state], -1)
            position = torch.tensor([[self._read]], device=self.device)
            output = self._assistant.model(
                inputs_embeds=inputs.to(self.device),
                position_ids=position,
                shared_kv_states=self._target.shared_keys(),
            )
        self._drafted += 1
        self._state = output.last_hidden_state[0]
        logits: Tensor = output.logits[0, :, : self._vocab]
        return logits.float() / temperature

    def rollback(self, length: int) -> None:
        self._drafted = 0


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
    need = MemoryNeed(parameter_count(model), 0)
    return HeadMetadata(source, model, need, partial(_load_assistant, source, config))


def buildable(config: Any) -> Any:
    """Change an assistant's `config` so that this version of transformers can make a model of it.

    In 5.23.0 the layers ask `kv_sharing_modes` of the text config which of them share a cache, and
    it raises an error if all do, as here. The answer for these layers is known.
    """
    text_class = type(config.text_config)
    if hasattr(text_class, "kv_sharing_modes"):
        modes = property(lambda text: ["reuse"] * text.num_hidden_layers)
        # transformers finds the class of the model by this name.
        name = text_class.__name__
        class_with_modes = type(name, (text_class,), {"kv_sharing_modes": modes})
        config.text_config.__class__ = class_with_modes
    return config


def check_assistant(model: Any, target: Any) -> None:
    """Raise `PairError` unless an assistant fits the target; both may be on the `meta` device."""
    target_type = text_config(target).model_type
    wanted_type = text_config(model).model_type
    if target_type != wanted_type:
        raise PairError(
            f"the assistant is for targets of type {wanted_type} and this target is of type "
            f"{target_type}: choose an assistant that was trained for it."
        )
    target_width = model.config.backbone_hidden_size
    vocab = text_config(model).vocab_size
    check_fit(target, target_width, vocab, "assistant")
