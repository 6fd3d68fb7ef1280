"""Which engine a server is, by the shape of its answers."""

from __future__ import annotations

from ..address import ServerAddress
from ..identity import LLAMA_CPP, identity_of
from ..wire import Server
from .llama_server import LlamaServer
from .stream import Engine
from .vllm import Vllm


def recognised(address: ServerAddress, model: str) -> Engine:
    """The engine at an address, which has this model. Raises `ServerError`, and `PairError` if it
    does not have it."""
    server = Server(address)
    identity = identity_of(server, model)
    return (LlamaServer if identity.engine == LLAMA_CPP else Vllm)(server, model, identity)
