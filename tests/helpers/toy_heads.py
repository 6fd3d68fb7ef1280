"""Tiny heads on a target, as folders in both published formats, and their expected logits.

The reference, `ToyHead`, follows the description of EAGLE-3 (arXiv 2503.01840) and uses nothing of
the package: it keeps no cache, and reads every position of a chain again at each step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig

from specviz.core.model_facts import logit_width, text_config
from specviz.sides.heads.eagle import Head, HeadConfig


def random_head(target: Any) -> Head:
    """Make a head that fits any target whose layers can be found, and guesses at random."""
    own = text_config(target)
    vocab = logit_width(target)
    layer = LlamaConfig(
        vocab_size=vocab,
        hidden_size=own.hidden_size,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
    )
    torch.manual_seed(0)
    config = HeadConfig(layer, own.hidden_size, (1, own.num_hidden_layers), vocab)
    return Head(config, torch.randn(vocab, own.hidden_size)).to(target.dtype).eval()


HEADS = 2
KV_HEADS = 1
DIM = 32
INNER = 64
THETA = 500.0
EPS = 1e-5


@dataclass
class ToyHead:
    """A random head for `target`.

    states: the `hidden_states` of transformers that it reads. drafted: the target's ids of its
    tokens. norm_first: whether its residual is the normed state. own: whether it has an embedding
    of its own.
    """

    target: Any
    states: Sequence[int]
    drafted: Sequence[int]
    norm_first: bool = False
    own: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        self._read: tuple[list[int], Tensor] | None = None
        generator = torch.Generator().manual_seed(self.seed)
        config = self.target.config
        width = config.hidden_size
        vocab = config.vocab_size
        shapes = {
            "fc": (width, len(self.states) * width),
            "q": (HEADS * DIM, 2 * width),
            "k": (KV_HEADS * DIM, 2 * width),
            "v": (KV_HEADS * DIM, 2 * width),
            "o": (width, HEADS * DIM),
            "gate": (INNER, width),
            "up": (INNER, width),
            "down": (width, INNER),
            "lm_head": (len(self.drafted), width),
            "embed": (vocab, width),
        }
        self.w = {
            name: torch.randn(shape, generator=generator) * (1.0 if name == "embed" else 0.3)
            for name, shape in shapes.items()
        }
        for name in ("hidden_norm", "input_norm", "post_norm", "norm"):
            self.w[name] = 0.5 + torch.rand(width, generator=generator)
        if not self.own:
            self.w["embed"] = self.target.get_input_embeddings().weight.detach()

    def logits(self, ids: Sequence[int], chain: int) -> Tensor:
        """Compute the logits [vocab] after the text `ids`, whose last `chain` tokens are drafts."""
        w = self.w
        text = torch.tensor(list(ids))
        known = len(ids) - chain  # tokens of the text; the target has read all but the last
        with torch.no_grad():
            hidden = self._target_states(ids[: known - 1]) @ w["fc"].T
            for step in range(chain + 1):
                out = self._layer(text[1 : known + step], hidden)
                hidden = torch.cat([hidden, out[-1:]])
            own = self._normed(out[-1], "norm") @ w["lm_head"].T
        whole = torch.full((self.target.config.vocab_size,), -torch.inf)
        whole[list(self.drafted)] = own
        return whole

    def _target_states(self, ids: Sequence[int]) -> Tensor:
        """The states [ids, ...] that the head reads, the same for all chains of a round."""
        if self._read is None or self._read[0] != list(ids):
            read = self.target(input_ids=torch.tensor([list(ids)]), output_hidden_states=True)
            states = torch.cat([read.hidden_states[n][0] for n in self.states], -1)
            self._read = list(ids), states
        return self._read[1]

    def _layer(self, ids: Tensor, hidden: Tensor) -> Tensor:
        w = self.w
        n = len(ids)
        state = self._normed(hidden, "hidden_norm")
        x = torch.cat([self._normed(w["embed"][ids], "input_norm"), state], -1)
        q, k, v = ((x @ w[name].T).view(n, -1, DIM) for name in "qkv")
        q = self._rotated(q)
        k = self._rotated(k)
        scores = torch.einsum("nhd,tgd->nht", q, k) / DIM**0.5
        is_later = torch.ones(n, n, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(is_later[:, None], -torch.inf).softmax(-1)
        seen = torch.einsum("nht,tgd->nhd", weights, v).flatten(1)
        after = (state if self.norm_first else hidden) + seen @ w["o"].T
        y = self._normed(after, "post_norm")
        gate = y @ w["gate"].T
        return after + (gate * gate.sigmoid() * (y @ w["up"].T)) @ w["down"].T

    def _rotated(self, x: Tensor) -> Tensor:
        half = DIM // 2
        angles = torch.arange(len(x))[:, None] / THETA ** (torch.arange(half) / half)
        cosine = angles.cos()[:, None]
        sine = angles.sin()[:, None]
        low = x[..., :half]
        high = x[..., half:]
        return torch.cat([low * cosine - high * sine, high * cosine + low * sine], -1)

    def _normed(self, x: Tensor, name: str) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt() * self.w[name]

    def _config(self) -> dict[str, Any]:
        return {
            "hidden_size": self.target.config.hidden_size,
            "intermediate_size": INNER,
            "num_hidden_layers": 1,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": DIM,
            "hidden_act": "silu",
            "max_position_embeddings": 512,
            "model_type": "llama",
            "rms_norm_eps": EPS,
            "rope_theta": THETA,
            "vocab_size": self.target.config.vocab_size,
        }

    def save_eagle(self, folder: Path, **changes: Any) -> Path:
        """Save a checkpoint in the format of EAGLE-3's authors; `changes` go into its config."""
        config = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "draft_vocab_size": len(self.drafted),
            **self._config(),
        }
        return self._save(folder, "midlayer.", config | changes)

    def save_speculators(self, folder: Path, **changes: Any) -> Path:
        """Save a checkpoint in the format of `speculators`."""
        config = {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "draft_vocab_size": len(self.drafted),
            "norm_before_residual": self.norm_first,
            "eagle_aux_hidden_state_layer_ids": list(self.states),
            "transformer_layer_config": self._config(),
            "speculators_config": {"verifier": {"name_or_path": "someone/another"}},
        }
        return self._save(folder, "layers.0.", config | changes)

    def _save(self, folder: Path, layer: str, config: dict[str, Any]) -> Path:
        w = self.w
        drafted = torch.tensor(list(self.drafted))
        tensors = {
            **{f"{layer}self_attn.{name}_proj.weight": w[name] for name in "qkvo"},
            **{f"{layer}mlp.{name}_proj.weight": w[name] for name in ("gate", "up", "down")},
            f"{layer}hidden_norm.weight": w["hidden_norm"],
            f"{layer}input_layernorm.weight": w["input_norm"],
            f"{layer}post_attention_layernorm.weight": w["post_norm"],
            "norm.weight": w["norm"],
            "fc.weight": w["fc"],
            "lm_head.weight": w["lm_head"],
            "d2t": drafted - torch.arange(len(drafted)),
            "t2d": torch.isin(torch.arange(self.target.config.vocab_size), drafted),
        }
        if self.own:
            tensors["embed_tokens.weight"] = w["embed"]
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config))
        return folder
