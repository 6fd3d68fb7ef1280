"""A random pair with so few tokens that every text can be counted."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig

from specviz.measure.bench.random_models import numbers, random_model

WORDS = 6
NOISE = 0.15  # of the draft's weights, in standard deviations: it is wrong often enough


def save(folder: Path) -> tuple[Path, Path]:
    """Write the pair to folders below `folder`; returns target and draft."""
    size = (WORDS, 64, 64, 2, 2, 1, False)
    target, draft = (
        random_model(LlamaConfig, size, head_dim=32, initializer_range=0.3) for _ in range(2)
    )
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += NOISE * weight.std() * torch.randn_like(weight)
    places = folder / "target", folder / "draft"
    for model, place in zip((target, draft), places, strict=True):
        model.save_pretrained(place)
        numbers(WORDS).save_pretrained(place)
    return places
