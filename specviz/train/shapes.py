"""Shapes of the models that are trained, and models of a shape."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ..errors import SpecvizError

HEAD_WIDTH = 64
CONTEXT = 1024  # positions
MOST_SHARED = 3  # most query heads per key-value head; sharing makes a long context cheaper


@dataclass(frozen=True)
class Shape:
    """The depth and width of a Llama, from which all other sizes follow.

    Raises `SpecvizError` if no model can have this shape.
    """

    layers: int
    width: int

    def __post_init__(self) -> None:
        if self.layers < 1 or self.width < HEAD_WIDTH or self.width % HEAD_WIDTH:
            raise SpecvizError(
                f"A model of {self.layers} layers x {self.width} cannot be built: use at least one "
                f"layer and a width that is a multiple of {HEAD_WIDTH}."
            )

    @property
    def heads(self) -> int:
        """The number of query heads."""
        return self.width // HEAD_WIDTH

    @property
    def kv_heads(self) -> int:
        """The number of key-value heads: as few as `MOST_SHARED` allows."""
        groups = range(MOST_SHARED, 0, -1)
        return self.heads // next(group for group in groups if self.heads % group == 0)

    @property
    def feed_forward(self) -> int:
        """The inner width of the SwiGLU: 8/3 of the width, rounded up to a multiple of 64."""
        return -(-8 * self.width // 3 // HEAD_WIDTH) * HEAD_WIDTH


@dataclass(frozen=True)
class PairShape:
    """The shapes of a pair, and the default minutes of training for the target and the draft."""

    target: Shape
    draft: Shape
    minutes: float
    draft_minutes: float


PRESETS = {
    "small": PairShape(Shape(8, 384), Shape(2, 128), minutes=240, draft_minutes=60),
    "large": PairShape(Shape(8, 512), Shape(2, 192), minutes=30, draft_minutes=10),
}


def build_model(shape: Shape, *, vocabulary: int, end_id: int, seed: int) -> LlamaForCausalLM:
    """A new Llama in fp32 with tied embeddings. seed: of its random initial weights."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=HEAD_WIDTH,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=end_id,
        eos_token_id=end_id,
        pad_token_id=end_id,
        use_cache=False,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    # With zero output weights the layers do not change the residual stream at first, which makes
    # training more stable.
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    # transformers sets the padding row to zero and does not train it; here it is also the
    # end-of-text token.
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=config.initializer_range)
    model.model.embed_tokens.padding_idx = None
    return model
