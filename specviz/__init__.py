"""See speculative decoding: a target alone races the same target helped by a draft."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy_exports
from ._version import __version__
from .core.events import Choice, End, Header, Round, Token
from .errors import SpecvizError
from .runs.metrics import Metrics, compute_metrics
from .runs.trace import Trace
from .settings import Settings

if TYPE_CHECKING:
    from .core.loop import baseline, speculate
    from .core.race import race
    from .pairs.load import load_pair
    from .pairs.pair import Pair

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

__getattr__ = lazy_exports(
    __name__,
    {
        "Pair": "pairs.pair",
        "baseline": "core.loop",
        "load_pair": "pairs.load",
        "race": "core.race",
        "speculate": "core.loop",
    },
)
