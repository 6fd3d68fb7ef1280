"""Speculative decoding: drafts, verdicts, and the race of both lanes."""

from .._lazy import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "baseline": "loop",
        "decode": "loop",
        "explain_difference": "difference",
        "speculate": "loop",
        "verify": "sampling",
    },
)
