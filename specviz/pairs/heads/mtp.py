"""The multi-token prediction layers of a target: those that transformers itself can run.

Many checkpoints carry such layers, and transformers drops most of them when it loads a model. Where
it can run them, they are transformers' own modules (`MtpModel`), with the target's embeddings and
its head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import nn

from ...core.states import StateReader
from ...errors import PairError, ran_out_of_memory
from ..hub import weight_names
from ..metadata import ModelMetadata, configured_caches
from ..pair import text_config
from ..sizes import MemoryNeed
from ..spec import OWN_LAYERS
from ..truncated import FINAL
from ..weights import ModelSource

if TYPE_CHECKING:
    from ...core.protocols import StateEngine

COUNTS = (
    "num_mtp_layers",
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "mtp_num_layers",
    "num_mtp_modules",
)
"""Fields of published configs that give the number of these layers."""


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

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def make_engine(self, vocab: int, target: StateEngine) -> StateReader:
        """Transformers' modules with an empty cache."""
        from ...sides.heads import MtpEngine

        return MtpEngine(self, vocab)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def step_parts(self) -> tuple[nn.Module, ...]:
        """The modules that a step along a chain runs."""
        return self.model.layers[-1], self.model.shared_head

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those that the target does not have."""
        return own_parameters(self.model)

    def check(self, target: Any) -> None:
        """Raise `PairError` unless these layers belong to the target."""
        if self.model.embed_tokens is not target.get_input_embeddings():
            raise PairError("these multi-token prediction layers are those of another target.")


@dataclass(frozen=True)
class MtpMetadata:
    """What is known of a target's layers before their weights are read. model: on the `meta`
    device."""

    source: ModelSource
    model: Any

    @property
    def need(self) -> MemoryNeed:
        """The memory that they need: weights, and a cache in each layer."""
        parameters = sum(p.numel() for p in own_parameters(self.model))
        return MemoryNeed(parameters, 0, configured_caches(self.model.config).layers)

    def load(self, target: Any, *_: object) -> MtpHead:
        """They with their weights, on the device of the target's logits. Raises `PairError` if the
        checkpoint lacks them."""
        from transformers.modeling_layers import MtpModel

        place = target.get_output_embeddings().weight.device
        try:
            model = MtpModel.from_pretrained(target, device_map={"": place})
        except Exception as error:  # damaged files can make transformers raise any error
            if ran_out_of_memory(error):
                raise
            raise PairError(_lacking_sentence(self.source.shown)) from error
        return MtpHead(model.eval(), target)


def own_parameters(model: Any) -> Iterator[nn.Parameter]:
    """The parameters of an `MtpModel` without those that are the target's."""
    shared = {id(p) for part in (model.embed_tokens, model.shared_head) for p in part.parameters()}
    return (p for p in model.parameters() if id(p) not in shared)


def mtp_count(config: Any) -> int:
    """How many multi-token prediction layers the config of a model names; 0 if none."""
    for one in (config.get_text_config(), config):
        for field in COUNTS:
            count = getattr(one, field, None)
            if isinstance(count, int) and count > 0:
                return count
    return 0


def read_mtp(target: ModelMetadata) -> MtpMetadata:
    """The metadata of the target's layers. Raises `PairError` if it has none that can be run."""
    shown = target.source.shown
    if not mtp_count(target.config):
        raise PairError(
            f"{shown} has no multi-token prediction layers: name a draft or a head instead of "
            f"'{OWN_LAYERS}'."
        )
    model = runnable(target.model)
    if model is None:
        raise PairError(dropped_sentence(target))
    if target.quantized:
        raise PairError(
            f"{shown} has quantized weights, of which transformers cannot read the multi-token "
            "prediction layers: choose the checkpoint in 16 bits, or another drafter."
        )
    from transformers.modeling_layers import MtpModel

    names = weight_names(target.source)
    pattern = MtpModel.get_mtp_weights_regex(target.model)
    if names is not None and not any(pattern.search(name) for name in names):
        raise PairError(_lacking_sentence(shown))
    return MtpMetadata(target.source, model)


def runnable(target: Any) -> Any:
    """The `MtpModel` of a target on the `meta` device, or None if transformers cannot make it."""
    try:
        from transformers.modeling_layers import MtpModel

        MtpModel.get_mtp_weights_regex(target)
        with torch.device("meta"):
            return MtpModel(target, text_config(target).num_mtp_layers)
    except Exception:  # each version and family has its own way to say that it cannot
        return None


def dropped_sentence(target: ModelMetadata) -> str:
    """One sentence: that transformers cannot run the layers of this checkpoint."""
    count, kind = mtp_count(target.config), text_config(target.model).model_type
    return (
        f"{target.source.shown} has {counted(count)}, which transformers "
        f"{transformers.__version__} does not run for models of type {kind}: here they cannot "
        "draft, so choose another drafter."
    )


def counted(count: int) -> str:
    """ "1 multi-token prediction layer"."""
    return f"{count} multi-token prediction layer{'s' if count > 1 else ''}"


def _lacking_sentence(shown: str) -> str:
    return (
        f"{shown} lacks weights of its multi-token prediction layers, though its config names "
        "them: choose the original checkpoint, or another drafter."
    )
