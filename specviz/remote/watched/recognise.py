"""Which engine a server is, by the shape of its answers."""

from __future__ import annotations

import re

from ...errors import PairError
from ..address import ServerAddress
from ..identity import LLAMA_CPP, identity_of
from ..wire import Server
from .llama_server import LlamaServer
from .stream import Engine
from .vllm import Vllm

BETWEEN = re.compile(r"\s*\|\s*(?=https?://)")
NAMING = (
    "a server that is watched is named http://HOST:PORT/v1#MODEL, and with a second one as the "
    "baseline http://HOST:PORT/v1#MODEL | http://OTHER:PORT/v1#MODEL"
)


def watched_addresses(name: str) -> list[tuple[str, str]] | None:
    """The address and the model of a server to watch, and perhaps those of its baseline; None for
    other names, among them a target on a server with a draft of its own, "…#MODEL+DRAFT".

    Raises `PairError` if there are two addresses and one is not complete.
    """
    if not isinstance(name, str) or not name.startswith(("http://", "https://")):
        return None
    parts = [part.strip() for part in BETWEEN.split(name)]
    found = [(url.strip(), model.strip()) for url, _, model in (p.partition("#") for p in parts)]
    if len(found) == 1:
        (_, model), *_ = found
        return found if model and "+" not in model else None
    if len(found) > 2 or not all(model and "+" not in model for _, model in found):
        raise PairError(f"{NAMING}.")
    return found


def recognised(address: ServerAddress, model: str) -> Engine:
    """The engine at an address, which has this model. Raises `ServerError`, and `PairError` if it
    does not have it."""
    server = Server(address)
    identity = identity_of(server, model)
    return (LlamaServer if identity.engine == LLAMA_CPP else Vllm)(server, model, identity)
