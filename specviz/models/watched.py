"""The pair of a server that speculates by itself, and is only watched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import torch

from ..environment import REMOTE_KEY
from ..errors import PairError
from ..remote.watched.counters import counters
from ..remote.watched.recognise import recognised, watched_addresses
from ..remote.watched.stream import Engine
from .pair import Pair

ONLY_WATCHED = (
    "a server that is watched can only race: it drafts and judges by itself, and shows no "
    "distributions."
)


@dataclass(frozen=True, eq=False)
class Watched(Pair):
    """Stands where there is a `Pair`, without models: both are on the server.

    stream: the engine that is watched. alone: that of the target alone, or None.
    """

    stream: Any = None
    alone: Any = None

    def __post_init__(self) -> None:
        assert self.stream is not None

    @property
    def drafters(self) -> tuple[str, ...]:
        """None of ours: the server drafts."""
        return ("none",)

    def encode(self, *_: Any, **__: Any) -> NoReturn:
        """Raises `PairError`."""
        raise PairError(ONLY_WATCHED)

    @cached_property
    def vocab(self) -> int:
        raise PairError(ONLY_WATCHED)

    @property
    def device(self) -> torch.device:
        raise PairError(ONLY_WATCHED)


def watched_pair(name: str) -> Watched | None:
    """The pair with a name such as "http://HOST:PORT/v1#MODEL", with " | " and a second address for
    the baseline; None for other names. Its own name has no address.

    Raises `PairError` and `ServerError`.
    """
    addresses = watched_addresses(name)
    if addresses is None:
        return None
    engines = [recognised(url, model, REMOTE_KEY.read()) for url, model in addresses]
    alone = engines[1] if engines[1:] else None
    if alone is not None and _speculates(alone):
        raise PairError(
            f"{alone.server.shown} speculates too: a baseline is a server of the target alone, "
            "so start it without speculation."
        )
    shown = engines[0].model
    return Watched(None, None, None, name=shown, stream=engines[0], alone=alone)


def _speculates(engine: Engine) -> bool:
    """Whether a server counts drafts: vLLM does if it speculates, llama.cpp always, 0 if not."""
    counted = counters(engine.server, engine.model)
    return counted is not None and (not engine.steps_told or counted["drafted"] > 0)
