"""Llama-architecture models on a CPU in fp32, without the library's per-call overhead.

Same weights and arithmetic as transformers' LlamaForCausalLM, arranged for one short pass at a
time: norms folded into the matrices behind them, q, k and v in one product, weights laid out
for the kernel that is fastest at that width, and a growing cache whose rollback is a length.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from .pair import context_length, parameter_count

Linear: TypeAlias = Callable[[Tensor], Tensor]

MOST_PARAMETERS = 300_000_000  # the layouts cost two copies of the weights beside the model's own
PACKING_WIDTH = 256  # narrower matrices stay in cache, where packing only adds a call's cost
TYPICAL_ROWS = 6  # a verify pass of gamma = 5
TOLERANCE = 1e-3  # logits against the model's own; fp32 differs by about 1e-5
STATIC_ROPE = ("default", "linear", "llama3", "yarn")


class Layer(NamedTuple):
    """The matrices of one block; norms are folded into `qkv` and `gate_up`."""

    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear


class PackedModel:
    """A model's weights in the layout of this module, shared by all its engines."""

    def __init__(self, model: Any, vocab: int) -> None:
        config = model.config
        self.vocab = vocab
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = model.model.layers[0].self_attn.head_dim
        self.eps = config.rms_norm_eps
        self.embedding = model.model.embed_tokens.weight.detach()
        self.width = self.embedding.shape[1]
        self.limit = context_length(model) or 0
        self.layers = [self._layer(block) for block in model.model.layers]
        head = model.get_output_embeddings()
        norm = model.model.norm.weight.detach()
        self.head = _linear(head.weight.detach()[:vocab] * norm, None)
        self.rotation = _rotation(model.model.rotary_emb, self.limit)

    def _layer(self, block: Any) -> Layer:
        attention, mlp = block.self_attn, block.mlp
        order = _interleaved(self.head_dim)
        q, k = (
            _reordered(proj, heads, order)
            for proj, heads in ((attention.q_proj, self.heads), (attention.k_proj, self.kv_heads))
        )
        v = (attention.v_proj.weight.detach(), _bias(attention.v_proj))
        return Layer(
            _folded([q, k, v], block.input_layernorm.weight.detach()),
            _linear(attention.o_proj.weight.detach(), _bias(attention.o_proj)),
            _folded(
                [(p.weight.detach(), _bias(p)) for p in (mlp.gate_proj, mlp.up_proj)],
                block.post_attention_layernorm.weight.detach(),
            ),
            _linear(mlp.down_proj.weight.detach(), _bias(mlp.down_proj)),
        )


class PackedEngine:
    """The `Engine` over a `PackedModel`."""

    form = "packed"

    def __init__(self, model: PackedModel) -> None:
        self.device = torch.device("cpu")
        self.length = 0
        self._model = model
        self._capacity = 0
        self._keys: list[Tensor] = []  # a layer each: [kv_heads, capacity, head_dim]
        self._values: list[Tensor] = []

    @torch.inference_mode()
    def forward(self, ids: Tensor, keep: int, layers: int | None = None) -> Tensor:
        m, start, end = self._model, self.length, self.length + ids.shape[0]
        self._reserve(end)
        rotation = m.rotation[start:end]  # [n, 1, head_dim / 2]
        mask = None  # a single token sees all
        if end - start > 1:
            mask = torch.full((end - start, end), float("-inf")).triu_(start + 1)
        x = F.embedding(ids, m.embedding)  # [n, width]
        # Of a shallow pass only the first layers' buffers hold what follows `start`.
        for layer, keys, values in zip(
            m.layers[:layers], self._keys, self._values, strict=layers is None
        ):
            x = x + layer.out(
                self._attention(layer.qkv(self._norm(x)), rotation, keys, values, mask)
            )
            gate, up = layer.gate_up(self._norm(x)).chunk(2, -1)
            x = x + layer.down(F.silu(gate) * up)
        self.length = end
        return m.head(self._norm(x[-keep:]))

    def rollback(self, length: int) -> None:
        self.length = length

    def _norm(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self._model.width,), None, self._model.eps)

    def _attention(
        self, qkv: Tensor, rotation: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
    ) -> Tensor:
        """[n, (heads + 2 kv_heads) * head_dim] to [n, heads * head_dim]; fills the cache."""
        m, n = self._model, qkv.shape[0]
        start, end = self.length, self.length + n
        states = qkv.view(n, m.heads + 2 * m.kv_heads, m.head_dim)
        turned = states[:, : m.heads + m.kv_heads].unflatten(-1, (-1, 2))
        turned = torch.view_as_real(torch.view_as_complex(turned) * rotation).flatten(-2)
        keys[:, start:end] = turned[:, m.heads :].transpose(0, 1)
        values[:, start:end] = states[:, m.heads + m.kv_heads :].transpose(0, 1)
        seen = F.scaled_dot_product_attention(
            turned[:, : m.heads].transpose(0, 1).unsqueeze(0),
            keys[:, :end].unsqueeze(0),
            values[:, :end].unsqueeze(0),
            attn_mask=mask,
            enable_gqa=m.heads != m.kv_heads,
        )
        return seen[0].transpose(0, 1).reshape(n, m.heads * m.head_dim)

    def _reserve(self, length: int) -> None:
        if length <= self._capacity:
            return
        m = self._model
        self._capacity = min(max(2 * self._capacity, length, 128), max(m.limit, length))
        shape = (m.kv_heads, self._capacity, m.head_dim)
        for buffers in (self._keys, self._values):
            grown = [torch.empty(shape) for _ in m.layers]
            for new, old in zip(grown, buffers, strict=False):
                new[:, : self.length] = old[:, : self.length]
            buffers[:] = grown


Stamp: TypeAlias = tuple[object, ...]

_packed: WeakKeyDictionary[Any, tuple[Stamp, PackedModel | None]] = WeakKeyDictionary()


def packed_model(model: Any, vocab: int) -> PackedModel | None:
    """`model` in this module's layout, or None if it is of another kind.

    The layout is made once per model and checked against the model's own logits; where they
    differ, a warning says so and the model runs as it is.
    """
    # Weights that were replaced or changed in place since must be laid out anew.
    stamp = (vocab, *((p.data_ptr(), p._version) for p in model.parameters()))
    if model not in _packed or _packed[model][0] != stamp:
        _packed[model] = (stamp, _checked(model, vocab) if _suits(model) else None)
    return _packed[model][1]


def _suits(model: Any) -> bool:
    if model.config.model_type != "llama" or model.device.type != "cpu":
        return False
    # Only here: it brings half of transformers along, and the page's start need not wait for it.
    from transformers import LlamaForCausalLM

    if type(model) is not LlamaForCausalLM:
        return False
    parameters = list(model.parameters())
    plain = all(p.dtype == torch.float32 and p.device.type == "cpu" for p in parameters)
    linears = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    untouched = all(type(m) is torch.nn.Linear and not m._forward_hooks for m in linears)
    config = model.config
    return (
        plain
        and untouched
        and parameter_count(model) <= MOST_PARAMETERS
        and bool(context_length(model))
        and config.hidden_act == "silu"
        and getattr(model.model.rotary_emb, "rope_type", "default") in STATIC_ROPE
    )


@torch.inference_mode()
def _checked(model: Any, vocab: int) -> PackedModel | None:
    count = min(TYPICAL_ROWS + 1, context_length(model) or 0)
    ids = torch.arange(count) % vocab
    try:
        packed = PackedModel(model, vocab)
        engine = PackedEngine(packed)
        # One pass of many tokens, then the last of them again alone: both kernels are seen.
        many = engine.forward(ids, count)
        engine.rollback(count - 1)
        one = engine.forward(ids[-1:], 1)
    except RuntimeError as error:
        warnings.warn(
            f"the packed form cannot run here ({error}); using the plain one", stacklevel=2
        )
        return None
    wanted = model(input_ids=ids.unsqueeze(0), use_cache=False).logits[0, :, :vocab]
    close = all(
        torch.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)
        for ours, theirs in ((many, wanted), (one, wanted[-1:]))
    )
    if not close and torch.isfinite(wanted).all():
        warnings.warn("the packed form gave other logits; using the plain one", stacklevel=2)
    return packed if close else None


def _linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """x [n, in] to x @ weight.T + bias [n, out], in the layout that suits each n."""
    turned = weight.t().contiguous()

    def product(x: Tensor) -> Tensor:
        return torch.mm(x, turned) if bias is None else torch.addmm(bias, x, turned)

    if min(weight.shape) < PACKING_WIDTH or not torch.backends.mkldnn.is_available():
        return product
    operator = torch.ops.mkldnn._linear_pointwise.default
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), TYPICAL_ROWS)

    def either(x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            return product(x)
        result: Tensor = operator(x, packed, bias, "none", [], "")
        return result

    return either


def _folded(parts: list[tuple[Tensor, Tensor | None]], norm: Tensor) -> Linear:
    """Several linears of one normed input as one, the norm's scale taken into the weights."""
    weight = torch.cat([w for w, _ in parts]) * norm
    biases = [b for _, b in parts if b is not None]
    return _linear(weight, torch.cat(biases) if biases else None)


def _bias(linear: Any) -> Tensor | None:
    return linear.bias.detach() if linear.bias is not None else None


def _interleaved(head_dim: int) -> Tensor:
    # transformers rotates entry i against entry i + head_dim / 2. Side by side they are one
    # complex number, and the rotation one product; q and k reordered alike agree as before.
    return torch.arange(head_dim).view(2, -1).t().reshape(-1)


def _reordered(linear: Any, heads: int, order: Tensor) -> tuple[Tensor, Tensor | None]:
    weight, bias = linear.weight.detach(), _bias(linear)
    by_head = weight.view(heads, len(order), -1)[:, order].reshape(weight.shape)
    return by_head, bias.view(heads, -1)[:, order].reshape(-1) if bias is not None else None


def _rotation(rotary: Any, length: int) -> Tensor:
    """e^(i * place * frequency), complex64 [length, 1, head_dim / 2]."""
    angles = torch.outer(torch.arange(length).float(), rotary.inv_freq.float())
    scale = torch.full_like(angles, float(rotary.attention_scaling))
    return torch.polar(scale, angles).unsqueeze(1)
