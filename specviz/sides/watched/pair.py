"""A server that speculates by itself, and is only watched: it stands where a pair does in a race,
and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.events import Event
from ...errors import PairError, SettingsError
from ...lanes import SPECULATIVE, Lane
from ...pairs.progress import Progress
from ...pairs.spec import WatchedSpec
from ...remote.address import ServerAddress, server_address
from ...remote.identity import LLAMA_CPP, identity_of
from ...remote.wire import Server
from ...settings import Settings
from .llama_server import LlamaServer
from .stream import Engine, Prompt
from .vllm import Vllm
from .watching import watch


@dataclass(frozen=True, eq=False)
class Watched:
    """An engine on a server, which drafts and judges by itself.

    name: of its model. stream: the engine that is watched. alone: that of the target alone, or
    None.
    """

    name: str
    stream: Engine
    alone: Engine | None = None

    drafters = ("none",)  # of ours: the server drafts

    def settings(self, **values: Any) -> Settings:
        """`Settings` with these values. Raises `SettingsError`."""
        return Settings(**{"drafter": "none", **values})

    def race(
        self, prompt: Prompt, lanes: Mapping[Lane, Settings], memory: object = ()
    ) -> Iterator[Event]:
        """What `race` yields of it: the lane of the server's stream, and a baseline if there is a
        second server. Raises `SettingsError` and `ServerError`."""
        if set(lanes) != {SPECULATIVE} or memory:
            raise SettingsError("a watched server has one lane with drafts: leave out the others.")
        return watch(self.stream, self.alone, prompt, lanes[SPECULATIVE])


def watched_pair(spec: WatchedSpec) -> Watched:
    """The engines of such a name. Raises `PairError` and `ServerError`."""
    addresses = [one for one in (spec.engine, spec.alone) if one is not None]
    engines = [recognised(server_address(one.url), one.model) for one in addresses]
    alone = engines[1] if engines[1:] else None
    if alone is not None and alone.identity.speculates:
        raise PairError(
            f"{alone.server.shown} speculates too: a baseline is a server of the target alone, "
            "so start it without speculation."
        )
    return Watched(engines[0].model, engines[0], alone)


def load_watched(spec: WatchedSpec, asked: Any) -> Watched:
    """The same as a source of pairs; no option of loading concerns it."""
    if asked.on_progress is not None:
        asked.on_progress(Progress("asking the server of the target"))
    return watched_pair(spec)


def recognised(address: ServerAddress, model: str) -> Engine:
    """The engine at an address, which has this model. Raises `ServerError`, and `PairError` if it
    does not have it."""
    server = Server(address)
    identity = identity_of(server, model)
    return (LlamaServer if identity.engine == LLAMA_CPP else Vllm)(server, model, identity)
