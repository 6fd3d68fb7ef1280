"""A random pair with so few tokens that every text can be counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = 6
NOISE = 0.15  # of the draft's weights, in standard deviations: it is wrong often enough


def save(folder: Path) -> tuple[Path, Path]:
    """Write the pair to folders below `folder`; returns target and draft."""
    torch.manual_seed(0)
    target = _model()
    draft = _model()
    draft.load_state_dict(target.state_dict())
    with torch.no_grad():
        for weight in draft.parameters():
            weight += NOISE * weight.std() * torch.randn_like(weight)
    places = folder / "target", folder / "draft"
    for model, place in zip((target, draft), places, strict=True):
        model.save_pretrained(place)
        _tokenizer().save_pretrained(place)
    return places


def _model() -> Any:
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=64,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config)


def _tokenizer() -> PreTrainedTokenizerFast:
    words = {f"w{i}": i for i in range(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)
