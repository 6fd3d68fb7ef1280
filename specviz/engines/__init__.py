"""One model on one device: timed passes over a cache that can be rolled back."""

from .._lazy import lazy_exports

__getattr__ = lazy_exports(
    __name__,
    {
        "Engine": "base",
        "make_engine": "choose",
        "prefill": "base",
    },
)
