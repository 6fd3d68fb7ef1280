"""See speculative decoding: a target alone races the same target helped by a draft."""

from .decoding import baseline, speculate
from .errors import SpecvizError
from .metrics import Metrics, compute_metrics
from .pair import Pair
from .pairs import load_pair
from .race import race
from .settings import Settings
from .trace import Choice, End, Header, Round, Token, Trace

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
