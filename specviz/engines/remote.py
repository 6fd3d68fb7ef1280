"""A target on a server behind the interface of an engine: its cache is a list of ids, its logits
are the server's log-probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import PairError
from ..remote.target import LISTED, RemoteTarget, prefixes_of
from ..settings import Settings
from ..trace import SERVER


class RemoteEngine:
    """A `RemoteTarget` that has read some tokens.

    exchanged: bytes sent and received by the passes so far.
    """

    form = SERVER
    partial = True

    def __init__(self, target: RemoteTarget, vocab: int) -> None:
        self._target, self._vocab = target, vocab
        self._ids: list[int] = []
        self._listed = LISTED
        self.device = target.device
        self.exchanged = 0

    @property
    def length(self) -> int:
        return len(self._ids)

    def ask_for(self, settings: Settings) -> None:
        """Ask for as many log-probabilities as these settings need. Raises `PairError`."""
        self._listed = self._target.listed_for(settings)
        self.partial = self._listed < self._vocab

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        if layers is not None:
            raise PairError(
                "a target on a server cannot draft with its first layers: choose another drafter."
            )
        whole = [*self._ids, *ids.tolist()]
        completions = self._target.completions
        rows = completions.rows(prefixes_of(whole, keep), self._listed, self._vocab)
        self.exchanged += completions.last.sent + completions.last.received
        self._ids = whole
        return rows if temperature == 1.0 else rows / torch.tensor(temperature)

    def rollback(self, length: int) -> None:
        del self._ids[length:]
