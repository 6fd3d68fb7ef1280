"""A target that a server holds: vLLM or another that speaks OpenAI's completions."""

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
