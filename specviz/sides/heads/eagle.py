"""A head on the target: one decoder layer that drafts from the target's hidden states (EAGLE-3).

Li et al. 2025, arXiv 2503.01840. At position i the head reads the embedding of token i + 1 and a
hidden state of width `width`, and predicts token i + 2. Where the target has read token i, that
state is made from three of the target's own (`fuse`); further along a chain of drafts it is the
head's own output of the position before. The module names are those of the published checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf
from transformers.cache_utils import DynamicLayer
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from ...base.errors import PairError
from ...core.eager import memory_limited
from ...core.llama_layer import LlamaSizes, llama_sizes
from ...core.model_facts import logit_width, text_config
from ...core.states import EAGLE, StateReader

if TYPE_CHECKING:
    from ...core.protocols import StateEngine


@dataclass(frozen=True)
class HeadConfig:
    """The shape of a head.

    layer: the `LlamaConfig` of its decoder layer, whose hidden_size is the head's width, and whose
    vocab_size is the target's.
    """

    layer: Any
    target_width: int  # of the target's states
    states: tuple[int, ...]  # numbers of the target's layers after which they are read
    draft_vocab: int  # the number of tokens that it can draft
    norm_before_residual: bool = False  # whether the layer's residual is the normed state
    norm_before_fc: bool = False  # whether the target's states are normed before `fc`
    head_norms: bool = False  # whether q and k are normed by head

    @property
    def sizes(self) -> LlamaSizes:
        """The sizes of its layer, whose queries, keys and values read twice the width."""
        return replace(llama_sizes(self.layer), head_norms=self.head_norms)


class HeadAttention(nn.Module):
    """Attention over an embedding and a state side by side, [.., 2 * width]."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        sizes = config.sizes
        self.head_dim = sizes.head_dim
        self.q_proj = nn.Linear(2 * sizes.width, sizes.queries, bias=sizes.qkv_bias)
        self.k_proj = nn.Linear(2 * sizes.width, sizes.keys, bias=sizes.qkv_bias)
        self.v_proj = nn.Linear(2 * sizes.width, sizes.keys, bias=sizes.qkv_bias)
        self.o_proj = nn.Linear(sizes.queries, sizes.width, bias=sizes.output_bias)
        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        if sizes.head_norms:
            eps = config.layer.rms_norm_eps
            self.q_norm = LlamaRMSNorm(sizes.head_dim, eps)
            self.k_norm = LlamaRMSNorm(sizes.head_dim, eps)

    def projected(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v of x [rows, n, 2 * width]: [rows, heads, n, head_dim] each, q and k rotated."""
        q = self.q_norm(self._by_heads(self.q_proj(x)))
        k = self.k_norm(self._by_heads(self.k_proj(x)))
        v = self._by_heads(self.v_proj(x))
        q, k = apply_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), *angles)
        return q, k, v.transpose(1, 2)

    def _by_heads(self, states: Tensor) -> Tensor:
        """States [rows, n, heads * head_dim] as [rows, n, heads, head_dim]."""
        by_heads: Tensor = states.unflatten(-1, (-1, self.head_dim))
        return by_heads


class HeadLayer(nn.Module):
    """The decoder layer of a head, in two halves: before attention and after it."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        width = config.layer.hidden_size
        eps = config.layer.rms_norm_eps
        self.self_attn = HeadAttention(config)
        self.mlp = LlamaMLP(config.layer)
        self.hidden_norm = LlamaRMSNorm(width, eps=eps)
        self.input_layernorm = LlamaRMSNorm(width, eps=eps)
        self.post_attention_layernorm = LlamaRMSNorm(width, eps=eps)
        self._norm_before_residual = config.norm_before_residual

    def begin(
        self, embeddings: Tensor, hidden: Tensor, angles: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Compute the residual [rows, n, width], and q, k and v."""
        normed = self.hidden_norm(hidden)
        x = torch.cat([self.input_layernorm(embeddings), normed], -1)
        residual = normed if self._norm_before_residual else hidden
        return residual, self.self_attn.projected(x, angles)

    def finish(self, residual: Tensor, seen: Tensor) -> Tensor:
        """Compute the layer's output [rows, n, width]. seen: the attention's output, [rows, heads,
        n, dim]."""
        x = residual + self.self_attn.o_proj(seen.transpose(1, 2).flatten(-2))
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Head(nn.Module):
    """A head with its weights.

    embedding: the table of token embeddings, [vocab, width]; the target's own if the checkpoint has
    none. targets: int64 [draft_vocab], the target's id of each token that the head can draft.
    name_or_path: its hub id or folder.
    """

    d2t: Tensor
    name_or_path = ""
    kind = EAGLE

    def __init__(self, config: HeadConfig, embedding: Tensor | None = None) -> None:
        super().__init__()
        layer = config.layer
        self.config = config
        self.states = config.states
        self.midlayer = HeadLayer(config)
        inputs = len(config.states) * config.target_width
        self.input_norm: nn.Module = nn.Identity()
        if config.norm_before_fc:
            self.input_norm = LlamaRMSNorm(inputs, layer.rms_norm_eps)
        self.fc = nn.Linear(inputs, layer.hidden_size, bias=False)
        self.norm = LlamaRMSNorm(layer.hidden_size, eps=layer.rms_norm_eps)
        self.lm_head = nn.Linear(layer.hidden_size, config.draft_vocab, bias=False)
        self.register_buffer("d2t", torch.zeros(config.draft_vocab, dtype=torch.long))
        self.rotary = LlamaRotaryEmbedding(layer)
        # Not a parameter: it may be the target's, of another dtype, and is neither trained nor
        # saved.
        self.embedding = embedding

    @property
    def device(self) -> torch.device:
        return self.fc.weight.device

    def make_engine(self, vocab: int, target_engine: StateEngine) -> StateReader:
        """Make an engine of torch's own modules, with an empty cache."""
        return HeadEngine(self, vocab)

    @property
    def dtype(self) -> torch.dtype:
        return self.fc.weight.dtype

    @property
    def step_parts(self) -> tuple[nn.Module, ...]:
        """The modules of a step along a chain."""
        return self.midlayer, self.norm, self.lm_head

    def check(self, target: Any) -> None:
        """Raise `PairError` unless it fits the target."""
        check_head(self.config, target)

    @property
    def targets(self) -> Tensor:
        """int64 [draft_vocab]: the target's id of each of the head's ids."""
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def fuse(self, states: Tensor) -> Tensor:
        """Fuse the target's states [.., len(states) * target_width] into one [.., width]."""
        fused: Tensor = self.fc(self.input_norm(states.to(self.dtype)))
        return fused

    def embed(self, ids: Tensor) -> Tensor:
        """The embeddings of int64 `ids` [..]: [.., width]."""
        assert self.embedding is not None
        return nnf.embedding(ids, self.embedding).to(self.dtype)

    def angles(self, begin: int, count: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of `count` positions from `begin` on, [1, count, head_dim] each."""
        positions = torch.arange(begin, begin + count, device=self.device)
        angles: tuple[Tensor, Tensor] = self.rotary(self.fc.weight, positions.unsqueeze(0))
        return angles

    def step(self, ids: Tensor, hidden: Tensor, cache: Any) -> Tensor:
        """Read n more positions: ids int64 [n], hidden [n, width]. cache: a layer of one of
        transformers' caches, with the positions before. Returns the outputs [n, width] before the
        final norm: `logits` turns them into predictions, and the next step reads them."""
        begin = int(cache.get_seq_length())
        n = len(ids)
        embeddings = self.embed(ids).unsqueeze(0)
        states = hidden.unsqueeze(0)
        residual, (q, k, v) = self.midlayer.begin(embeddings, states, self.angles(begin, n))
        keys, values = cache.update(k, v)  # [1, kv_heads, begin + n, head_dim]
        mask = None
        if n > 1:
            mask = torch.ones(n, begin + n, dtype=torch.bool, device=q.device).tril(begin)
        seen = nnf.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
        return self.midlayer.finish(residual, seen)[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits of outputs [n, width]: fp32 [n, draft_vocab]."""
        logits: Tensor = self.lm_head(self.norm(hidden))
        return logits.float()


class HeadEngine(StateReader):
    """An EAGLE-3 head and the positions in its cache.

    At position i it reads the target's state of token i, and token i + 1. So it never reads the
    first token of a text, and has read `length` tokens when its cache holds length - 1 positions.
    """

    def __init__(self, head: Head, vocab: int) -> None:
        super().__init__(head.device, vocab)
        self._head = head
        weight = head.fc.weight
        self._cache = DynamicLayer()
        self._unread_states = weight.new_empty(0, head.fc.in_features)
        self._output = weight.new_empty(0, head.fc.out_features)  # of the last position
        # Ids without a token in the target's tokenizer are never drafted.
        self._known = (head.targets < vocab).nonzero()[:, 0]
        self._targets = head.targets[self._known]

    @property
    def length(self) -> int:
        return int(self._cache.get_seq_length()) + 1

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        head = self._head
        with memory_limited():
            hidden = self._output
            if len(self._unread_states):
                hidden = head.fuse(self._unread_states)
                self._unread_states = self._unread_states[:0]
            outputs = head.step(ids.to(self.device), hidden, self._cache)
            self._output = outputs[-1:]
            logits = head.logits(outputs[-keep:]) / temperature
            return self._over_target_vocab(logits)

    def rollback(self, length: int) -> None:
        self._cache.crop(length - 1 - int(self._cache.get_seq_length()))

    def _over_target_vocab(self, logits: Tensor) -> Tensor:
        """Spread logits of the head's tokens [n, draft_vocab] over the whole vocabulary, fp32 [n,
        vocab]: -inf elsewhere, so that the probability there is 0."""
        target_logits = logits.new_full((len(logits), self._vocab), -torch.inf)
        target_logits[:, self._targets] = logits[:, self._known]
        return target_logits


def check_head(config: HeadConfig, target: Any) -> None:
    """Raise `PairError` unless a head of this shape fits the target."""
    layers = text_config(target).num_hidden_layers
    if not all(1 <= n <= layers for n in config.states):
        raise PairError(
            f"the head reads hidden states after {', '.join(map(str, config.states))} layers and "
            f"the target has {layers} layers: choose a head that was trained for this target."
        )
    check_fit(target, config.target_width, config.layer.vocab_size, "head")


def check_fit(target: Any, width: int, vocab: int, what: str) -> None:
    """Raise `PairError` unless the target has states of this width and a vocabulary of this
    size."""
    target_width = text_config(target).hidden_size
    if width != target_width:
        raise PairError(
            f"the {what} reads hidden states of width {width} and the target's have width "
            f"{target_width}: choose one that was trained for this target."
        )
    target_vocab = logit_width(target)
    if vocab != target_vocab:
        raise PairError(
            f"the {what}'s vocabulary has {vocab:,} tokens and the target's has {target_vocab:,}: "
            "choose one that was trained for this target."
        )
