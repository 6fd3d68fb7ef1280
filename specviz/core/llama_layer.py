"""The tensors of a layer of the Llama family, with their names and shapes.

Loading, the doctor, all passes and heads read this one description. It imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""The types of models in the family: transformers and GGUF files use the same names."""


@dataclass(frozen=True, slots=True)
class LlamaSizes:
    """The sizes of a model of the family, equal in all of its layers.

    width: of a state.
    inner: of the states between the projections of the MLP.
    heads, kv_heads: of queries, and of keys and values.
    head_dim: numbers of a head.
    qkv_bias, output_bias: whether the projections of the attention have biases.
    mlp_bias: whether those of the MLP have.
    head_norms: whether each head of queries and keys is normalised.
    """

    layers: int
    vocab: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_norms: bool = False

    @property
    def queries(self) -> int:
        """Numbers of all query heads."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Numbers of all key heads, as many as of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def group(self) -> int:
        """The number of query heads that share a head of keys and values."""
        return self.heads // self.kv_heads

    @property
    def cached(self) -> int:
        """Numbers that a layer caches for a token: its keys and values."""
        return 2 * self.keys

    @property
    def score_factor(self) -> float:
        """The factor of the attention's scores."""
        return float(self.head_dim**-0.5)


class Linear(NamedTuple):
    """A linear layer.

    name: of its weight in a compiled pass. module: its path in transformers' layer. gguf: its name
    in a block of a GGUF file. outputs, inputs: fields of `LlamaSizes`, as is bias, which says
    whether it has one.
    """

    name: str
    module: str
    gguf: str
    outputs: str
    inputs: str
    bias: str

    def shape(self, sizes: LlamaSizes) -> tuple[int, int]:
        """The weight's shape: [outputs, inputs]."""
        return getattr(sizes, self.outputs), getattr(sizes, self.inputs)

    def has_bias(self, sizes: LlamaSizes) -> bool:
        """Whether it has a bias [outputs]."""
        has_bias: bool = getattr(sizes, self.bias)
        return has_bias


class Norm(NamedTuple):
    """An RMS norm. width: a field of `LlamaSizes`. of_heads: whether it normalises each head, which
    few models do. The other fields are those of `Linear`."""

    name: str
    module: str
    gguf: str
    width: str
    of_heads: bool = False

    def shape(self, sizes: LlamaSizes) -> tuple[int]:
        """The weight's shape: [width]."""
        return (getattr(sizes, self.width),)


LINEARS = (
    Linear("query", "self_attn.q_proj", "attn_q", "queries", "width", "qkv_bias"),
    Linear("key", "self_attn.k_proj", "attn_k", "keys", "width", "qkv_bias"),
    Linear("value", "self_attn.v_proj", "attn_v", "keys", "width", "qkv_bias"),
    Linear("out", "self_attn.o_proj", "attn_output", "width", "queries", "output_bias"),
    Linear("gate", "mlp.gate_proj", "ffn_gate", "inner", "width", "mlp_bias"),
    Linear("up", "mlp.up_proj", "ffn_up", "inner", "width", "mlp_bias"),
    Linear("down", "mlp.down_proj", "ffn_down", "width", "inner", "mlp_bias"),
)
"""All linear layers of a layer."""

NORMS = (
    Norm("input_norm", "input_layernorm", "attn_norm", "width"),
    Norm("middle_norm", "post_attention_layernorm", "ffn_norm", "width"),
    Norm("query_norm", "self_attn.q_norm", "attn_q_norm", "head_dim", of_heads=True),
    Norm("key_norm", "self_attn.k_norm", "attn_k_norm", "head_dim", of_heads=True),
)
"""All norms of a layer."""


def llama_norms(sizes: LlamaSizes) -> tuple[Norm, ...]:
    """The norms that layers of these sizes have."""
    return tuple(norm for norm in NORMS if sizes.head_norms or not norm.of_heads)


def llama_sizes(config: Any) -> LlamaSizes:
    """The sizes of a model with this config of transformers, whose type is one of `TYPES`."""
    kind = config.model_type
    heads = config.num_attention_heads
    has_biases = kind in ("llama", "qwen3") and config.attention_bias
    return LlamaSizes(
        layers=config.num_hidden_layers,
        vocab=config.vocab_size,
        width=config.hidden_size,
        inner=config.intermediate_size,
        heads=heads,
        kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        qkv_bias=kind == "qwen2" or has_biases,
        output_bias=has_biases,
        mlp_bias=kind == "llama" and config.mlp_bias,
        head_norms=kind == "qwen3",
    )


def layer_modules(layer: Any) -> dict[str, Any]:
    """The linear layers and norms of a layer, by their names here; None for a norm that it
    lacks."""
    modules = {}
    for part in (*LINEARS, *NORMS):
        parent, _, name = part.module.rpartition(".")
        # torch's ways to find modules by their paths take some of a short run's time, and `getattr`
        # would fetch a missing norm of a model without code from transformers.
        parts = layer._modules[parent]._modules if parent else layer._modules
        modules[part.name] = parts.get(name)
    return modules


def linear_places(model: Any) -> Iterator[tuple[Any, str]]:
    """Find the linear layers inside a model: the parent module of each, and its name there."""
    for layer in model.model.layers:
        for linear in LINEARS:
            parent, _, name = linear.module.rpartition(".")
            yield layer.get_submodule(parent), name
