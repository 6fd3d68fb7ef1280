"""A target on a server behind the interface of an engine: its cache is a list of ids, its logits
are the server's log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.engine import OwnEngine
from ...core.events import SERVER
from ...core.types import DecodingPath, RunContext
from ...errors import PairError
from ...settings import Settings
from .interface import Drawn, Spent
from .target import LISTED, RemoteTarget, prefixes_of


class RemoteEngine(OwnEngine):
    """A `RemoteTarget` that has read some tokens.

    draws: the server draws, and logits are not known (see `ask_for`).
    """

    form = SERVER
    partial = True

    def __init__(self, target: RemoteTarget, vocab: int) -> None:
        self._target, self._vocab = target, vocab
        self._ids: list[int] = []
        self._listed = LISTED
        self.draws = False
        self.device = target.device
        self._spent = Spent()  # since `told` was last asked

    @property
    def length(self) -> int:
        return len(self._ids)

    def ask_for(self, settings: Settings) -> None:
        """Ask for as many log-probabilities as these settings need, or let the server draw where
        it does not list them. Raises `PairError` if it can do neither."""
        listed = self._target.listed_for(settings)
        self.draws = listed is None
        self._listed = listed or LISTED
        self.partial = self._listed < self._vocab

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        if layers is not None:
            raise PairError(
                "a target on a server cannot draft with its first layers: choose another drafter."
            )
        whole = [*self._ids, *ids.tolist()]
        server = self._target.server
        rows = server.rows(prefixes_of(whole, keep), self._listed, self._vocab)
        self._spent = self._spent.plus(server.spent)
        self._ids = whole
        return rows if temperature == 1.0 else rows / torch.tensor(temperature)

    def draw(self, ids: Sequence[int], settings: Settings, seed: int) -> list[Drawn]:
        """Append `ids` to the cache; returns a token that the server drew after each of them, with
        the probabilities there of all of them but the first."""
        whole = [*self._ids, *ids]
        found = self._draws(prefixes_of(whole, len(ids)), ids[1:], settings, seed, 1)
        self._ids = whole
        return [drawn[0] for drawn in found]

    def draw_again(self, length: int, settings: Settings, seed: int, count: int) -> list[Drawn]:
        """`count` more tokens, drawn after the first `length` tokens in the cache."""
        return self._draws([self._ids[:length]], (), settings, seed, count)[0]

    def path(self, run: RunContext) -> DecodingPath:
        from .drawn import served_path  # which needs this engine

        return served_path(self, run)

    def told(self) -> dict[str, Any]:
        spent, self._spent = self._spent, Spent()
        return {"exchanged": spent.exchanged or None, "server_seconds": spent.server}

    def rollback(self, length: int) -> None:
        del self._ids[length:]

    def _draws(
        self,
        prefixes: list[list[int]],
        asked: Sequence[int],
        settings: Settings,
        seed: int,
        count: int,
    ) -> list[list[Drawn]]:
        server = self._target.server
        found = server.draws(prefixes, asked, settings, seed, count)
        self._spent = self._spent.plus(server.spent)
        return found
