"""The tensor of a GGUF file for each weight of transformers' model, for files that are unpacked:
every weight has its tensor, and every tensor is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from ...base.errors import PairError
from ..few_bits.unpacking import PIECE
from .config import config_of, longrope
from .header import GgufHeader, GgufTensor
from .keys import (
    FREQUENCIES,
    LONG_FACTORS,
    SHORT_FACTORS,
    head_sizes,
    rope_of,
    unused_tensor,
)
from .layout import LAYER, SLOWED, named_tensors

_UNREADABLE = ("Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64", "Q1_0")
"""Kinds of tensors that are never weights, or that the package `gguf` cannot unpack."""

_GEMMA = {
    **LAYER,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_PHI_3 = {
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}
_GPT_2 = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
_LAYERS = {"gemma2": _GEMMA, "gemma3": _GEMMA, "phi3": _PHI_3, "gpt2": _GPT_2}
"""Modules of a layer in transformers by their names in files; other architectures use those of
`layout`."""

_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_GPT_2_OUTSIDE = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
}


class Weight(NamedTuple):
    """One weight of transformers' model. tensor: its name in the file. convert: the tensor's
    numbers, fp32 -> the weight's numbers."""

    tensor: str
    convert: Callable[[Tensor], Tensor]


def unpacked_config(header: GgufHeader) -> Any:
    """The config of transformers for an unpacked file, with the factors of frequencies from its
    tensors. Raises `PairError`."""
    config = config_of(header)
    rope = rope_of(header)
    if rope is None:
        return config
    width = rope.width // 2
    if rope.kind == "longrope":
        short_factors = _factors(header, SHORT_FACTORS, width)
        long_factors = _factors(header, LONG_FACTORS, width)
    elif FREQUENCIES in header.tensors and header.architecture in SLOWED:
        # The same factors for all lengths, as in Llama 3.1.
        if rope.kind != "default":
            raise PairError(
                f"{header.path.name} has both {FREQUENCIES} and scaled positions, which is not "
                "supported here: use the model's own repository."
            )
        short_factors = _factors(header, FREQUENCIES, width)
        long_factors = short_factors
    else:
        return config
    rotary_share = config.rope_parameters.get("partial_rotary_factor")
    config.rope_parameters = longrope(header, short_factors, long_factors)
    if rotary_share is not None:
        config.rope_parameters["partial_rotary_factor"] = rotary_share
    return config


def _factors(header: GgufHeader, name: str, width: int) -> list[float]:
    """The factors in a tensor, one for each pair of rotated numbers."""
    tensor = header.tensors[name]
    if tensor.kind != "F32" or tensor.shape != (width,):
        raise _wrong_shape(header, name)
    with header.path.open("rb") as file:
        file.seek(header.begin + tensor.start)
        factors = np.frombuffer(file.read(tensor.bytes), np.float32)
    are_positive = np.isfinite(factors).all() and (factors > 0).all()
    if not are_positive:
        raise PairError(
            f"{name} in {header.path.name} contains factors that are not positive numbers: "
            "download it again."
        )
    return [float(factor) for factor in factors]


def weights_of(header: GgufHeader, model: Any) -> dict[str, Weight]:
    """The weights of `model`, which may be on the `meta` device, by their names. Raises
    `PairError` if the file lacks one, or holds an unused tensor or one of another shape."""
    wanted = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    if model.config.tie_word_embeddings:
        wanted.pop("lm_head.weight", None)
    weights: dict[str, Weight] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    unused = set(header.tensors) - _factor_tensors(header)
    for tensor_name, name, weight, shape in _named(header):
        unused.discard(tensor_name)
        weights[name] = weight
        shapes[name] = shape
    for name in weights.keys() - wanted.keys():
        unused.add(weights[name].tensor)
    if unused:
        raise unused_tensor(header, min(unused))
    if missing := wanted.keys() - weights.keys():
        raise PairError(
            f"{header.path.name} lacks weights, such as {min(missing)}: download it again."
        )
    for name, shape in shapes.items():
        if shape != wanted[name]:
            raise _wrong_shape(header, weights[name].tensor)
    for weight in weights.values():
        _check_kind(header, weight.tensor)
    return weights


def _check_kind(header: GgufHeader, name: str) -> None:
    """Raise `PairError` if a tensor cannot be unpacked."""
    kind = header.tensors[name].kind
    if kind in _UNREADABLE:
        raise PairError(
            f"{header.path.name} stores {name} as {kind}, which cannot be unpacked "
            "here: use the model in another type, such as Q8_0."
        )


def _factor_tensors(header: GgufHeader) -> set[str]:
    """The tensors that become part of the config."""
    names = set()
    rope = rope_of(header)
    if rope is not None and rope.kind == "longrope":
        names |= {SHORT_FACTORS, LONG_FACTORS}
    if header.architecture in SLOWED:
        names.add(FREQUENCIES)
    return names


def _wrong_shape(header: GgufHeader, name: str) -> PairError:
    return PairError(
        f"{name} in {header.path.name} does not have the shape that the header describes: "
        "download it again, or use the model's own repository."
    )


def _named(header: GgufHeader) -> Iterator[tuple[str, str, Weight, tuple[int, ...]]]:
    """Each tensor that is a weight: its name, the weight's name, the weight, and its shape."""
    architecture = header.architecture
    for tensor_name, path in _paths(header):
        role = tensor_name.rpartition(".")[2]
        tensor = header.tensors[tensor_name]
        name = f"{path}.{role}"
        if architecture == "stablelm" and path.endswith(("q_norm", "k_norm")):
            yield from _norms_of_heads(tensor_name, path, tensor)
            continue
        convert, shape = _conversion(header, path, role, tensor)
        yield tensor_name, name, Weight(tensor_name, convert), shape


def _paths(header: GgufHeader) -> Iterator[tuple[str, str]]:
    """The tensors of known names, with the paths of their modules."""
    architecture = header.architecture
    layer = _LAYERS.get(architecture)
    if layer is None:
        yield from named_tensors(header)
        return
    if architecture == "gpt2":
        yield from named_tensors(header, _GPT_2_OUTSIDE, layer, "transformer.h")
        return
    outside = dict(_OUTSIDE)
    if architecture == "gemma2":  # its output layer is always the embedding table
        del outside["output"]
    yield from named_tensors(header, outside, layer)


def _conversion(
    header: GgufHeader, path: str, role: str, tensor: GgufTensor
) -> tuple[Callable[[Tensor], Tensor], tuple[int, ...]]:
    """The conversion of a tensor's numbers to those of its weight, and the weight's shape."""
    architecture = header.architecture
    if architecture in ("gemma2", "gemma3") and path.endswith("norm"):
        return _less_one, tensor.shape
    is_matrix = role == "weight" and (".attn." in path or ".mlp." in path)
    if architecture == "gpt2" and is_matrix:
        return _transposed, tensor.shape[::-1]
    sizes = head_sizes(header)
    if architecture == "llama" and sizes is not None:
        rotated_heads = {"q_proj": sizes.heads, "k_proj": sizes.key_heads}
        heads = rotated_heads.get(path.rpartition(".")[2])
        if heads is not None and tensor.shape[0] == heads * sizes.width:
            return partial(_halves_apart, heads=heads), tensor.shape
    return _unchanged, tensor.shape


def _unchanged(numbers: Tensor) -> Tensor:
    return numbers


def _less_one(numbers: Tensor) -> Tensor:
    """The weights of a norm that adds 1 to them; the file has added it already."""
    return numbers - 1


def _transposed(numbers: Tensor) -> Tensor:
    return numbers.T


def _halves_apart(numbers: Tensor, heads: int) -> Tensor:
    """Outputs of queries or keys reordered for a rotation of halves: llama.cpp rotates, in the
    architecture llama, outputs 2i and 2i + 1 of a head together, transformers i and i + width / 2.
    """
    rows = len(numbers) // heads // 2
    pairs = numbers.reshape(heads, rows, 2, *numbers.shape[1:])
    return pairs.transpose(1, 2).reshape(numbers.shape)


def _row(numbers: Tensor, row: int) -> Tensor:
    return numbers[row]


def _norms_of_heads(
    tensor_name: str, path: str, tensor: GgufTensor
) -> Iterator[tuple[str, str, Weight, tuple[int, ...]]]:
    """The norms of the heads of StableLM 2, which a file holds as rows of one tensor."""
    if len(tensor.shape) != 2:
        return
    parent = f"{path}.".replace("_norm.", "_layernorm.")
    for head in range(tensor.shape[0]):
        name = f"{parent}norms.{head}.weight"
        weight = Weight(tensor_name, partial(_row, row=head))
        yield tensor_name, name, weight, tensor.shape[1:]


def read_tensor(content: NDArray[np.uint8], header: GgufHeader, name: str) -> Tensor:
    """The numbers of a tensor, fp32, in its shape. content: the bytes of the file. Raises
    `PairError` if one of them is not finite."""
    tensor = header.tensors[name]
    kind = GGMLQuantizationType[tensor.kind]
    width = tensor.shape[-1]
    block, size = GGML_QUANT_SIZES[kind]
    if width % block:
        raise _wrong_shape(header, name)
    begin = header.begin + tensor.start
    end = begin + tensor.bytes
    row_bytes = width // block * size
    rows = content[begin:end].reshape(-1, row_bytes)
    numbers = torch.empty(len(rows), width)
    step = max(1, PIECE // width)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        blocks = np.ascontiguousarray(rows[part])
        # A large scale overflows; the result is checked below.
        with np.errstate(all="ignore"):
            numbers[part] = torch.from_numpy(dequantize(blocks, kind))
    if not bool(torch.isfinite(numbers).all()):
        raise PairError(
            f"{header.path.name} contains weights in {name} that are not finite: download it again."
        )
    return numbers.reshape(tensor.shape)
