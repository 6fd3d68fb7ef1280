"""A run as data: its events, the trace that holds them, its JSON, and the checks of recordings."""

from .end_rules import margin_of
from .events import (
    DIGITS,
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
    "DIGITS",
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
    "margin_of",
]
