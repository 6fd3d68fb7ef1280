"""Which engine a server is, by the shape of its answers."""

from __future__ import annotations

from typing import Any

from ...errors import PairError
from ..wire import Server
from .llama_server import LlamaServer
from .sglang import Sglang
from .stream import Engine
from .vllm import Vllm


def recognised(url: str, model: str, key: str | None) -> Engine:
    """The engine at an address, which has this model. Raises `ServerError`, and `PairError` if it
    does not have it."""
    server = Server(url, key)
    entry = _listed(server, model)
    context = entry.get("max_model_len")
    known = context if type(context) is int and context > 0 else None
    owner = entry.get("owned_by")
    if owner == "llamacpp":
        meta = entry.get("meta")
        return LlamaServer(server, model, meta if isinstance(meta, dict) else {})
    if owner == "sglang":
        return Sglang(server, model, known)
    return Vllm(server, model, known)


def _listed(server: Server, model: str) -> dict[str, Any]:
    listing = server.get("models")
    try:
        models = {entry["id"]: entry for entry in listing["data"]}
    except (KeyError, TypeError) as error:
        raise PairError(server.rubbish()) from error
    if model not in models:
        raise PairError(
            f"{server.shown} has no model {model!r}: name one of those that it has, "
            f"{', '.join(sorted(map(str, models))[:5]) or 'none'}."
        )
    return dict(models[model])
