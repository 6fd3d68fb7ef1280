"""A run as data: its events, the trace that holds them, its JSON, and the checks of recordings."""

from ..lanes import BASELINE, LANE_LABELS, LANES, SPECULATIVE, Lane
from .end_rules import agreement_of, margin_of
from .events import (
    DIGITS,
    OUTCOMES,
    SERVER,
    STREAMED,
    UNKNOWN_ID,
    Agreement,
    Choice,
    Divergence,
    End,
    EndReason,
    Event,
    Header,
    Outcome,
    Round,
    Token,
)
from .schema import SCHEMA
from .trace import Trace, digest_of, event_dict

__all__ = [
    "BASELINE",
    "DIGITS",
    "LANES",
    "LANE_LABELS",
    "OUTCOMES",
    "SCHEMA",
    "SERVER",
    "SPECULATIVE",
    "STREAMED",
    "UNKNOWN_ID",
    "Agreement",
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
    "agreement_of",
    "digest_of",
    "event_dict",
    "margin_of",
]
