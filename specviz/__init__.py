"""See speculative decoding: a target alone races the same target helped by a draft."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .errors import SpecvizError
from .metrics import Metrics, compute_metrics
from .settings import Settings
from .trace import Choice, End, Header, Round, Token, Trace

if TYPE_CHECKING:
    from .decoding import baseline, speculate
    from .pair import Pair
    from .pairs import load_pair
    from .race import race

__version__ = "0.1.0"
__all__ = [
    "Choice",
    "End",
    "Header",
    "Metrics",
    "Pair",
    "Round",
    "Settings",
    "SpecvizError",
    "Token",
    "Trace",
    "baseline",
    "compute_metrics",
    "load_pair",
    "race",
    "speculate",
]

# Fetched when first asked for: they bring torch, which takes seconds, and a process that only
# shows traces does without.
_LATER = {"baseline": "decoding", "speculate": "decoding", "Pair": "pair", "load_pair": "pairs"}


class _Face(ModuleType):
    """Keeps `specviz.race` the function, which importing the module `race` would replace."""

    @property
    def race(self) -> Any:
        return import_module(".race", __name__).race

    @race.setter
    def race(self, module: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Face


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LATER[name]}", __name__), name)
