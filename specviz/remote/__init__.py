"""A target that a server holds, and what different engines are asked."""

from __future__ import annotations

from .._lazy import lazy_exports

__all__ = ["RemoteTarget", "Server"]

__getattr__ = lazy_exports(
    __name__,
    {
        "RemoteTarget": "target",
        "Server": "wire",
    },
)
