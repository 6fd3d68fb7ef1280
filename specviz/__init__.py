"""See speculative decoding: a target alone races the same target helped by a draft."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .errors import SpecvizError
from .report.metrics import Metrics, compute_metrics
from .settings import Settings
from .trace import Choice, End, Header, Round, Token, Trace

if TYPE_CHECKING:
    from .decoding.loop import baseline, speculate
    from .decoding.race import race
    from .models.load import load_pair
    from .models.pair import Pair

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
    "__version__",
    "baseline",
    "compute_metrics",
    "load_pair",
    "race",
    "speculate",
]

# Imported when first asked for: they bring torch, which takes seconds, and a process that only
# shows traces does without.
_LAZY = {
    "Pair": "models.pair",
    "baseline": "decoding.loop",
    "load_pair": "models.load",
    "race": "decoding.race",
    "speculate": "decoding.loop",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
