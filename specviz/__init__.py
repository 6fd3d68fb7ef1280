"""See speculative decoding: a target alone races the same target helped by a draft."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy_exports
from ._version import __version__
from .core.events import Choice, End, Header, Round, Token
from .core.kinds import DrafterKind, VerdictKind
from .errors import SpecvizError
from .kinds import register
from .settings import Settings

if TYPE_CHECKING:
    from .core.drafting import Drafter
    from .core.loop import baseline, speculate
    from .core.race import race
    from .core.types import Draft
    from .pairs.load import load_pair
    from .pairs.pair import Pair
    from .result import Result, generate
    from .runs.metrics import Metrics, compute_metrics
    from .runs.trace import Trace

__all__ = [
    "Choice",
    "Draft",
    "Drafter",
    "DrafterKind",
    "End",
    "Header",
    "Metrics",
    "Pair",
    "Result",
    "Round",
    "Settings",
    "SpecvizError",
    "Token",
    "Trace",
    "VerdictKind",
    "__version__",
    "baseline",
    "compute_metrics",
    "generate",
    "load_pair",
    "race",
    "register",
    "speculate",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Draft": "core.types",
        "Drafter": "core.drafting",
        "Metrics": "runs.metrics",
        "Pair": "pairs.pair",
        "Result": "result",
        "Trace": "runs.trace",
        "baseline": "core.loop",
        "compute_metrics": "runs.metrics",
        "generate": "result",
        "load_pair": "pairs.load",
        "race": "core.race",
        "speculate": "core.loop",
    },
)
