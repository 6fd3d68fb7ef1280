"""Facts about a model: its context, vocabulary, weights and their size."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from .protocols import LanguageModel
    from .states import DraftHead

LONG_ROPE = "longrope"


def logit_width(model: LanguageModel) -> int:
    """How many logits the model returns for a position, padding included."""
    head = model.get_output_embeddings()
    outputs = getattr(head, "out_features", None)
    if outputs is not None:  # weights may be in another order than one row for each output
        return int(outputs)
    weight = getattr(head, "weight", None)
    if weight is not None:
        return int(weight.shape[0])
    return int(text_config(model).vocab_size)


def logits_device(model: LanguageModel) -> torch.device:
    """The device of a model's logits."""
    import torch  # counting needs no torch

    head = model.get_output_embeddings()
    if head is None:
        return torch.device(model.device)
    return torch.device(head.weight.device)


def text_config(model: LanguageModel) -> Any:
    """The config of the language model, which is nested in the config of a multimodal model."""
    return model.config.get_text_config()


def context_length(model: LanguageModel) -> int | None:
    """The model's context length in tokens, or None if its config has no limit."""
    limit = getattr(text_config(model), "max_position_embeddings", None)
    if not isinstance(limit, int) or limit <= 0:
        return None
    return int(limit)


def rotation_borders(model: Any) -> tuple[int, ...]:
    """The lengths in tokens beyond which a model rotates all positions by other factors, ascending.

    LongRoPE has factors for short and for long texts, and transformers takes those that the last
    token of a pass asks for, for all tokens of the pass. Functions of each position by itself, such
    as the temperature of Llama 4's attention, have no border. Dynamic NTK scaling only begins
    beyond the context, which no text exceeds.
    """
    borders: set[int] = set()
    for _, module in model.named_modules():
        # A module that has weights alone would become callable if the attribute were read.
        attributes = vars(module)
        if "rope_type" not in attributes:
            continue
        parameters = getattr(attributes.get("config"), "rope_parameters", None) or {}
        by_kind_of_layer = [value for value in parameters.values() if isinstance(value, dict)]
        for rope in by_kind_of_layer or [parameters]:
            if rope.get("rope_type") == LONG_ROPE or "long_mscale" in rope:
                borders.add(int(rope["original_max_position_embeddings"]))
    return tuple(sorted(borders))


def before_border(borders: Sequence[int], length: int, due: int) -> int:
    """`due` tokens, or fewer if a text of `length` meets its next border before: 0 at a border."""
    distances = [border - length for border in borders if border >= length]
    return min([due, *distances])


def cache_argument(model: Any) -> str:
    """The name of the cache's argument in a model of transformers, which changed in 5.24."""
    parameters = inspect.signature(model.forward).parameters
    for name in ("cache", "past_key_values", "cache_params"):
        if name in parameters:
            return name
    return "past_key_values"


def complete(model: LanguageModel) -> None:
    """Load the callable modules of a model that was loaded without them."""
    become_callable = getattr(type(model), "become_callable", None)
    if become_callable is not None:
        become_callable(model)


def changed_file(model: object) -> str | None:
    """The name of the file that a model's weights are mapped from, if it was written to since, so
    that the weights may have changed; else None."""
    file = getattr(model, "weights_file", None)
    if file is None or not file.was_written_to():
        return None
    return str(file.path.name)


def leaf_count(module: Any) -> int:
    """The number of modules inside of a module that have no modules in them."""
    return sum(not list(part.children()) for _, part in module.named_modules())


def parameter_count(model: LanguageModel | DraftHead) -> int:
    """The number of parameters, tied ones once, also where a file stores them apart; of packed
    weights as many as their blocks hold."""
    counts = {id(parameter): parameter.numel() for parameter in model.parameters()}
    modules = model.modules() if hasattr(model, "modules") else []  # a head may have none
    for module in modules:
        if hasattr(type(module), "numbers"):
            counts[id(module.weight)] = module.numbers
    if getattr(model, "stores_tied_apart", False):
        head: Any = model.get_output_embeddings()  # type: ignore[union-attr]
        del counts[id(head.weight)]
    return sum(counts.values())


def weights_form(model: LanguageModel) -> str:
    """The form of a model's weights: a dtype, such as "bfloat16", or the kind that most
    of its packed weights have, such as "Q4_K"."""
    packed_as: str | None = getattr(model, "packed_as", None)
    return packed_as or str(model.dtype).removeprefix("torch.")


def parameter_bytes(model: Any, *, without: Any = None) -> int:
    """Bytes of a loaded model's weights, tied ones once. without: a weight to leave out."""
    weights = (weight for weight in model.parameters() if weight is not without)
    return sum(weight.numel() * weight.element_size() for weight in weights)


def pass_bytes(model: Any) -> int:
    """Bytes of weights that a pass reads: all of them, without an untied embedding table."""
    return parameter_bytes(model, without=_untied_table(model))


class PassWeights(NamedTuple):
    """The numbers of weights that a pass multiplies.

    plain: of plain numbers. packed: unpacked from blocks, of `packed_bytes`. integer: multiplied as
    integers, by their codes.
    """

    plain: int
    packed: int
    packed_bytes: int
    integer: int = 0


def pass_weights(model: Any) -> PassWeights:
    """Count the weights of a pass: all of a model's, without an untied embedding table."""
    table = _untied_table(model)
    in_blocks = {}
    for module in model.modules():
        if hasattr(type(module), "numbers") and module.weight is not table:
            in_blocks[module.weight] = module
    plain = 0
    for weight in model.parameters():
        if weight not in in_blocks and weight is not table:
            plain += weight.numel()
    unpacked = [module for module in in_blocks.values() if not module.is_tiled]
    tiled = [module for module in in_blocks.values() if module.is_tiled]
    return PassWeights(
        plain=plain,
        packed=sum(module.numbers for module in unpacked),
        packed_bytes=sum(module.weight.nbytes for module in unpacked),
        integer=sum(module.numbers for module in tiled),
    )


def _untied_table(model: Any) -> Any:
    """The embedding table, if the output layer has weights of its own: a pass reads a row of it."""
    head = getattr(model.get_output_embeddings(), "weight", None)
    try:
        table = model.get_input_embeddings().weight
    except (NotImplementedError, AttributeError):  # a custom model may not have this method
        return None
    if table is head:
        return None
    return table
