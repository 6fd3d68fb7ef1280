"""A run as data: its events, the trace that holds them, its JSON, and the checks of recordings."""

from .events import (
    LANE_LABELS,
    LANES,
    OUTCOMES,
    Choice,
    Divergence,
    End,
    EndReason,
    Event,
    Header,
    Lane,
    Outcome,
    Round,
    Token,
)
from .schema import SCHEMA
from .trace import Trace, digest_of, event_dict

__all__ = [
    "LANES",
    "LANE_LABELS",
    "OUTCOMES",
    "SCHEMA",
    "Choice",
    "Divergence",
    "End",
    "EndReason",
    "Event",
    "Header",
    "Lane",
    "Outcome",
    "Round",
    "Token",
    "Trace",
    "digest_of",
    "event_dict",
]
