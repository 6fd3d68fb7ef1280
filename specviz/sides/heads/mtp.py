"""A target's own multi-token prediction layers, which transformers itself runs: weights and
engine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor, nn

from ...base.errors import PairError, ran_out_of_memory
from ...core.eager import memory_limited
from ...core.layers import FINAL
from ...core.model_facts import logits_device, text_config
from ...core.states import StateReader
from ...files.hub import folder_weights
from ...files.memory import MemoryNeed
from ...files.metadata import HeadMetadata, ModelMetadata, configured_caches
from ...files.source import ModelSource
from .configs import OWN_LAYERS

if TYPE_CHECKING:
    from ...core.protocols import StateEngine


class MtpHead:
    """The multi-token prediction layers of a loaded target.

    model: transformers' `MtpModel`, whose embeddings and head are the target's. count: of layers.
    """

    kind = "mtp"
    states = (FINAL,)

    def __init__(self, model: Any, target: Any) -> None:
        self.model = model
        self.count = len(model.layers)
        self.width = int(text_config(target).hidden_size)
        self.config = target.config
        self.name_or_path = f"{target.name_or_path}, MTP layers"
        self.parameters = partial(own_parameters, model)
        first = next(self.parameters())
        self.device = first.device
        self.dtype = first.dtype
        self.step_parts = model.layers[-1], model.shared_head

    def make_engine(self, vocab: int, target_engine: StateEngine) -> StateReader:
        """Make an engine of transformers' modules, with an empty cache."""
        return MtpEngine(self, vocab)

    def check(self, target: Any) -> None:
        """Raise `PairError` unless these layers belong to the target."""
        if self.model.embed_tokens is not target.get_input_embeddings():
            raise PairError(
                "these multi-token prediction layers belong to another target: load "
                "them with the target that they belong to."
            )


class MtpEngine(StateReader):
    """The target's multi-token prediction layers, each with the positions in its cache.

    Layer d (counted from 0) reads at position i the output of layer d - 1 there, or the target's
    own state of token i, and token i + d + 1; it predicts token i + d + 2. So each draft of a
    chain comes from the next layer, at the same position. Once all layers have drafted, the last
    one continues with its own output, one position further for each draft.

    The layers read their last positions with drafts. So after a verdict every layer reads these
    few positions again, with the tokens that were kept.
    """

    def __init__(self, head: MtpHead, vocab: int) -> None:
        super().__init__(head.device, vocab)
        from transformers.cache_utils import MtpCache  # older versions lack it

        self._model = head.model
        self._layers = head.count
        self._cache: Any = MtpCache(config=head.model.config)
        self._cache.activate_past_recording()
        no_states = torch.empty(0, head.width, device=head.device, dtype=head.dtype)
        self._unread_states = no_states
        self._output = no_states
        self._ids = torch.empty(0, dtype=torch.long, device=head.device)  # tokens read, from 1 on
        # By layer: the states still to be read, from the position where its cache ends after a
        # verdict.
        self._waiting = [no_states] * self._layers
        self._begin = [0] * self._layers
        self._step = 0  # of the chain

    @property
    def length(self) -> int:
        return len(self._ids) + 1

    @torch.inference_mode()
    def prefill(self, ids: Tensor, states: Tensor) -> None:
        super().prefill(ids, states)
        for layer in range(1, self._layers):
            sure = max(0, len(self._ids) - layer)
            known, waiting = self._waiting[layer].tensor_split([sure])
            self._waiting[layer] = waiting
            self._begin[layer] = len(known)
            if len(known):
                outputs = self._read(layer, known)
                self._pass_on(layer, outputs)

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        self._ids = torch.cat([self._ids, ids.to(self.device)])
        with memory_limited():
            outputs = self._chained()
            self._output = outputs[-1:]
            logits: Tensor = self._model._project_to_logits(outputs[None, -keep:])
        return logits[0, :, : self._vocab].float() / temperature

    def rollback(self, length: int) -> None:
        known = length - 1  # tokens from 1 on that stay, so layer d is sure of known - d positions
        for layer, cached in enumerate(self._cache.layers):
            cached_length = cached.get_seq_length()
            sure = min(max(0, known - layer), cached_length)
            if cached.is_initialized:
                cached.crop(sure - cached_length)  # by 0, too: it trims windows
            queued_end = sure  # the first layer reads the target's states, which do not wait
            if layer > 0:
                queued_end = max(0, known - layer + 1)
            begin = self._begin[layer]
            waiting = self._waiting[layer]
            self._waiting[layer] = waiting[sure - begin : queued_end - begin]
            self._begin[layer] = sure
        self._ids = self._ids[:known]

    def _chained(self) -> Tensor:
        """The outputs [n, width] of the pass over the tokens that were just added to `_ids`."""
        if len(self._unread_states):
            self._step = 0
            states = self._unread_states
            self._unread_states = self._unread_states[:0]
        else:
            self._step += 1
            states = self._output
            if self._step < self._layers:
                states = self._waiting[self._step]
        layer = min(self._step, self._layers - 1)
        outputs = self._read(layer, states)
        if layer == self._step:
            self._pass_on(layer, outputs)
        return outputs

    def _pass_on(self, layer: int, outputs: Tensor) -> None:
        """Queue a layer's outputs for the next layer, if there is one."""
        next_layer = layer + 1
        if next_layer < self._layers:
            waiting = self._waiting[next_layer]
            self._waiting[next_layer] = torch.cat([waiting, outputs])

    def _read(self, layer: int, states: Tensor) -> Tensor:
        """The outputs [n, width] of one layer for states [n, width] from the end of its cache
        on."""
        cached_length = self._cache.layers[layer].get_seq_length()
        begin = cached_length + layer
        positions = torch.arange(begin, begin + len(states), device=self.device)
        outputs: Tensor = self._model.forward_layer(
            layer,
            states[None],
            position_ids=positions[None] + 1,
            mtp_cache=self._cache,
            input_ids=self._ids[positions][None],
        )
        return outputs[0]


def _load_mtp(source: ModelSource, target: Any, *_: object) -> MtpHead:
    from transformers.modeling_layers import MtpModel

    try:
        model = MtpModel.from_pretrained(target, device_map={"": logits_device(target)})
    except Exception as error:  # damaged files can make transformers raise any error
        if ran_out_of_memory(error):
            raise
        raise PairError(_lacking_sentence(source.shown)) from error
    return MtpHead(model.eval(), target)


def own_parameters(model: Any) -> Iterator[nn.Parameter]:
    """The parameters of an `MtpModel` that are not the target's."""
    shared = [*model.embed_tokens.parameters(), *model.shared_head.parameters()]
    shared_ids = {id(parameter) for parameter in shared}
    for parameter in model.parameters():
        if id(parameter) not in shared_ids:
            yield parameter


def read_mtp(target: ModelMetadata) -> HeadMetadata:
    """The metadata of the target's own layers. Raises `PairError` if it has none that can be
    run."""
    shown = target.source.shown
    model = _runnable(target)
    if model is None:
        raise PairError(
            f"{shown} has no multi-token prediction layers that transformers "
            f"{transformers.__version__} can run (it drops them for many types of models and from "
            f"quantized weights): name a draft or a head instead of '{OWN_LAYERS}'."
        )
    pattern = type(model).get_mtp_weights_regex(target.model)
    if target.source.folder:
        weight_names = folder_weights(target.source)
        if not any(map(pattern.search, weight_names)):
            raise PairError(_lacking_sentence(shown))
    parameters = sum(parameter.numel() for parameter in own_parameters(model))
    caches = configured_caches(model.config)
    need = MemoryNeed(parameters, 0, caches.layers)
    return HeadMetadata(target.source, model, need, partial(_load_mtp, target.source))


def _runnable(target: ModelMetadata) -> Any:
    """The `MtpModel` of a target on the `meta` device, or None if transformers cannot make it."""
    try:
        from transformers.modeling_layers import MtpModel

        MtpModel.get_mtp_weights_regex(target.model)
        with torch.device("meta"):
            model = MtpModel(target.model, text_config(target.model).num_mtp_layers)
    except Exception:  # versions and families raise errors of many kinds
        return None
    if len(model.layers) == 0 or target.quantized:
        return None
    return model


def _lacking_sentence(shown: str) -> str:
    return (
        f"{shown} lacks weights of the multi-token prediction layers that its config describes: "
        "choose the original checkpoint, or another drafter."
    )
