"""Models: the table of pairs, checks before a download, loading, and what a pair needs."""

from .._lazy import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "Pair": "pair",
        "load_pair": "load",
        "examine": "doctor",
        "named_pairs": "catalogue",
    },
)
