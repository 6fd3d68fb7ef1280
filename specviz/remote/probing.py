"""Which engine a server runs, by the shape of its answers."""

from __future__ import annotations

from ..errors import PairError
from .completions import Completions
from .interface import Abilities, TargetServer, UnsuitedError
from .llama_server import LlamaServer
from .reading import served_models
from .sglang import Sglang
from .wire import Server, UnknownError

ADAPTERS = (Completions, Sglang, LlamaServer)


def find_server(
    url: str, model: str, key: str | None, vocab: int
) -> tuple[TargetServer, Abilities]:
    """The model of this name on a server, and what the server can do for a vocabulary of `vocab`.

    Every known form of question is asked until an answer can be read. Raises `ServerError`, and
    `PairError` if the server has no such model or answers none of them.
    """
    server = Server(url, key)
    models = served_models(server)
    if model not in models:
        raise PairError(
            f"{server.shown} has no model {model!r}: name one of those that it has, "
            f"{', '.join(sorted(models)[:5]) or 'none'}."
        )
    reasons: list[Exception] = []
    for adapter in ADAPTERS:
        candidate: TargetServer = adapter(server, model)
        try:
            return candidate, candidate.abilities(vocab)
        except (UnsuitedError, UnknownError) as error:
            reasons.append(error)
    raise reasons[0]
