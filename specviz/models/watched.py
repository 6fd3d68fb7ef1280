"""The pair of a server that speculates by itself, and is only watched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import torch

from ..errors import PairError
from ..remote.address import server_address
from ..remote.watched.recognise import recognised, watched_addresses
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
    engines = [recognised(server_address(url), model) for url, model in addresses]
    alone = engines[1] if engines[1:] else None
    if alone is not None and alone.identity.speculates:
        raise PairError(
            f"{alone.server.shown} speculates too: a baseline is a server of the target alone, "
            "so start it without speculation."
        )
    shown = engines[0].model
    return Watched(None, None, None, name=shown, stream=engines[0], alone=alone)
