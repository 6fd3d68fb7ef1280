"""Where drafts come from."""

from __future__ import annotations

from ...engines.base import Engine
from ...engines.static.engine import StaticEngine
from ...models.pair import Pair
from ...settings import Settings
from ..sampling import Source
from .base import Draft, Drafter, NoDrafter
from .early_exit import ExitDrafter
from .model import ModelDrafter
from .ngram import NgramDrafter
from .programmed import ProgramDrafter

__all__ = ["Draft", "Drafter", "make_drafter"]


def make_drafter(pair: Pair, settings: Settings, source: Source, target: Engine) -> Drafter:
    """The drafter that the settings name. gamma = 0 needs none.

    target: the engine that judges the drafts, whose first layers may draft them too. Raises
    `PairError` if this pair cannot draft so.
    """
    if settings.drafter == "none" or settings.gamma == 0:
        return NoDrafter()
    if settings.drafter == "ngram":
        return NgramDrafter(pair.vocab, pair.device)
    drafter: ExitDrafter | ModelDrafter
    if settings.drafter == "early-exit":
        drafter, engine = ExitDrafter(pair, settings, source, target), target
    else:
        drafter = ModelDrafter(pair, settings, source)
        engine = drafter.engine
    if isinstance(engine, StaticEngine):
        return ProgramDrafter(drafter, engine, pair, settings, source)
    return drafter
