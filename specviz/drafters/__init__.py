"""Where drafts come from."""

from __future__ import annotations

import torch

from ..engine import Engine
from ..pair import Pair
from ..settings import Settings
from .base import Draft, Drafter
from .exits import ExitDrafter
from .model import ModelDrafter
from .ngram import NgramDrafter
from .nothing import NoDrafter

__all__ = ["Draft", "Drafter", "make_drafter"]


def make_drafter(
    pair: Pair, settings: Settings, generator: torch.Generator, target: Engine
) -> Drafter:
    """The drafter that the settings name. gamma = 0 needs none.

    target: the engine that judges the drafts, whose first layers may draft them too. Raises
    `PairError` if this pair cannot draft so.
    """
    if settings.drafter == "none" or settings.gamma == 0:
        return NoDrafter()
    if settings.drafter == "ngram":
        return NgramDrafter(pair.vocab, pair.device)
    if settings.drafter == "early-exit":
        return ExitDrafter(pair, settings, generator, target)
    return ModelDrafter(pair, settings, generator)
