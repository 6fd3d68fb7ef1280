"""All that can be known of a model before its weights are there: config, shapes, tokenizer."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from .errors import PairError
from .probe import Caches, hollow_model, probed_caches
from .sources import Source, find_source, folder_weights, hub_options, why_not

# What a config says if its weights were quantized when they were saved.
QUANTIZATION = "quantization_config"


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
