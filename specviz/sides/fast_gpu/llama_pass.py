"""Short passes of the Llama family in few kernels.

A graph's replay needs no Python, but each of its kernels takes some microseconds however little it
computes. For one token these are most of a layer's time. transformers' modules take some 40 kernels
in a layer; here there are 14, of torch alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu
from transformers.cache_utils import StaticLayer

from ...core.llama_family import is_llama_family
from ...core.llama_layer import LlamaSizes, layer_modules, llama_sizes

MAX_TOKENS = 32  # tokens of a short pass; in longer ones, kernels have enough to compute

_one_at_a_time = Lock()  # joins weights


def llama_pass(model: Any) -> LlamaPass | None:
    """The pass of `model`, or None if it is not of the Llama family, or its weights are packed.

    The weights of linear layers that read the same input are joined in memory. The model's own
    parameters become views of them, with the values that they had.
    """
    is_packed = any(hasattr(module, "packed_as") for module in model.modules())
    if is_packed or not is_llama_family(model):
        return None
    return LlamaPass(model)


class Joined(NamedTuple):
    """Linear layers over the same input as one: weight [outputs, inputs], bias [outputs]."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class Rotation(NamedTuple):
    """The rotary factors for queries and keys at the positions of a pass, each [n, 1, head_dim].
    sin is negated in its first half, where the second half of a head is subtracted."""

    cos: Tensor
    sin: Tensor

    def rotate(self, heads: Tensor) -> Tensor:
        """Rotate queries or keys [n, heads, head_dim] to their positions."""
        half = heads.shape[-1] // 2
        return torch.addcmul(heads * self.cos, heads.roll(half, -1), self.sin)


class LlamaPass:
    """A pass over the layers of a static cache. It does not keep the model itself alive."""

    def __init__(self, model: Any) -> None:
        self._inner = model.model
        self._head = model.get_output_embeddings()
        sizes = llama_sizes(model.config)
        self._group = sizes.group
        self._layers = [LlamaLayer(layer, sizes) for layer in model.model.layers]

    def logits(
        self,
        ids: Tensor,
        positions: Tensor,
        visible: Tensor,
        keep: int,
        cache_layers: Sequence[StaticLayer],
        depth: int | None = None,
    ) -> Tensor:
        """Logits of the last `keep` of `ids` int64 [n], [keep, vocab], by the first `depth` layers
        or by all.

        positions: int64 [n]. visible: the cache positions that each token attends to, bool
        [n, capacity]. cache_layers: the layers of the cache, which store the keys and values.
        """
        x = self._inner.embed_tokens(ids)  # [n, width]; each layer adds to it in place
        rotation = self._rotation(x, positions)
        mask = torch.zeros_like(visible, dtype=x.dtype).masked_fill_(~visible, -torch.inf)
        mask = mask.repeat_interleave(self._group, 0)
        for layer, cache in zip(self._layers[:depth], cache_layers, strict=False):
            layer.add_to(x, rotation, mask, cache)
        logits: Tensor = self._head(norm(x[-keep:], self._inner.norm))
        return logits

    def _rotation(self, x: Tensor, positions: Tensor) -> Rotation:
        cos, sin = self._inner.rotary_emb(x, positions.unsqueeze(0))  # [1, n, head_dim] each
        first, second = sin[0].chunk(2, -1)
        signed_sin = torch.cat((-first, second), -1)
        return Rotation(cos[0].unsqueeze(1), signed_sin.unsqueeze(1))


class LlamaLayer:
    """One layer."""

    def __init__(self, layer: Any, sizes: LlamaSizes) -> None:
        modules = layer_modules(layer)
        self._modules = modules
        self._sizes = sizes
        self._qkv = joined((modules["query"], modules["key"], modules["value"]))
        self._gate_and_up = joined((modules["gate"], modules["up"]))

    def add_to(self, x: Tensor, rotation: Rotation, mask: Tensor, cache: StaticLayer) -> None:
        """Add the layer's output to its input `x` [n, width]. mask: added to the scores of each
        query of a group, [n * group, capacity]."""
        modules = self._modules
        normed = norm(x, modules["input_norm"])
        attended = self._attend(normed, rotation, mask, cache)
        add_product(x, attended, modules["out"])
        normed = norm(x, modules["middle_norm"])
        gate, up = self._gate_and_up(normed).chunk(2, -1)
        add_product(x, silu(gate).mul_(up), modules["down"])

    def _attend(self, x: Tensor, rotation: Rotation, mask: Tensor, cache: StaticLayer) -> Tensor:
        """The output of the heads: [n, heads * head_dim]."""
        n = len(x)
        heads = self._sizes.heads
        kv_heads = self._sizes.kv_heads
        head_dim = self._sizes.head_dim
        group = self._sizes.group
        qkv = self._qkv(x).view(n, heads + 2 * kv_heads, head_dim)
        # Queries and keys are rotated together, [n, heads, head_dim].
        to_rotate, value = qkv.split((heads + kv_heads, kv_heads), 1)
        if self._sizes.head_norms:
            query, key = to_rotate.split((heads, kv_heads), 1)
            query = norm(query, self._modules["query_norm"])
            key = norm(key, self._modules["key_norm"])
            to_rotate = torch.cat((query, key), 1)
        query, key = rotation.rotate(to_rotate).split((heads, kv_heads), 1)
        keys, values = cache.update(
            key.transpose(0, 1).unsqueeze(0), value.transpose(0, 1).unsqueeze(0)
        )
        # The queries of a group are rows of one head, so that its keys need no copies.
        grouped = query.reshape(n, kv_heads, group, head_dim).transpose(0, 1)
        query = grouped.reshape(1, kv_heads, -1, head_dim)
        attended = scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, scale=self._sizes.score_factor
        )
        attended = attended.view(kv_heads, n, group, head_dim).transpose(0, 1)
        return attended.reshape(n, -1)


def norm(x: Tensor, module: Any) -> Tensor:
    """Apply a module of RMS norm to `x`, in one kernel."""
    return rms_norm(x, x.shape[-1:], module.weight, module.variance_epsilon)


def add_product(x: Tensor, inputs: Tensor, module: Any) -> None:
    """Add a linear layer's output for `inputs` to `x`."""
    x.addmm_(inputs, module.weight.t())
    if module.bias is not None:
        x.add_(module.bias)


@torch.no_grad()
def joined(modules: Sequence[Any]) -> Joined:
    """Join linear layers into one; their weights and biases become views of its tensors."""
    with torch.inference_mode(False), _one_at_a_time:  # whose tensors no parameter may hold
        weight = _join([module.weight for module in modules])
        if modules[0].bias is None:
            return Joined(weight, None)
        bias = _join([module.bias for module in modules])
        return Joined(weight, bias)


def _join(parts: Sequence[Tensor]) -> Tensor:
    """Join the rows of the parameters in one tensor; the parameters become views of it."""
    rows = [len(part) for part in parts]
    if _are_joined(parts):
        first = parts[0]
        return first.detach().as_strided((sum(rows), *first.shape[1:]), first.stride())
    whole = torch.cat(list(parts))
    for part, view in zip(parts, whole.split(rows), strict=True):
        part.data = view
    return whole


def _are_joined(parts: Sequence[Tensor]) -> bool:
    """Whether the parameters are contiguous in one memory."""
    for before, after in pairwise(parts):
        if after.data_ptr() != before.data_ptr() + before.nbytes:
            return False
    storages = {part.untyped_storage().data_ptr() for part in parts}
    return len(storages) == 1
