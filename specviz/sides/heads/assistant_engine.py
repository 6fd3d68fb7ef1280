"""An assistant of Gemma 4 as an engine: it reads the target's last state and the target's cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...core.eager import EagerEngine, memory_limited
from ...core.states import StateReader
from ...pairs.heads.assistant import Assistant

if TYPE_CHECKING:
    from ...core.protocols import StateEngine


class AssistantEngine(StateReader):
    """An assistant beside the engine of its target.

    All drafts of a chain are made at one place, that of the last token of the text: the target's
    cache has none of the drafts. A step reads the embedding of the token before, and the target's
    state that predicted this token; further along the chain, the assistant's own output instead.
    """

    def __init__(self, assistant: Assistant, vocab: int, target: StateEngine) -> None:
        super().__init__(assistant.device, vocab)
        assert isinstance(target, EagerEngine)  # no other engine runs a Gemma 4
        self._assistant, self._target = assistant, target
        self._read = 0  # tokens that the target has read
        self._drafted = 0  # tokens of the chain that were read
        self._state = torch.empty(0)

    @property
    def length(self) -> int:
        return self._read + self._drafted

    def receive(self, states: Tensor) -> None:
        if len(states):
            self._read += len(states)
            self._state = states[-1:]

    def prefill(self, ids: Tensor, states: Tensor) -> None:
        self.receive(states)

    @torch.inference_mode()
    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        with memory_limited():
            embedded = self._assistant.embedding(ids[None])  # [1, 1, width]
            state = self._state[None].to(embedded)
            output = self._assistant.model(
                inputs_embeds=torch.cat([embedded, state], -1).to(self.device),
                position_ids=torch.tensor([[self._read]], device=self.device),
                shared_kv_states=self._target.shared_keys(),
            )
        self._drafted += 1
        self._state = output.last_hidden_state[0]
        logits: Tensor = output.logits[0, :, : self._vocab]
        return logits.float() / temperature

    def rollback(self, length: int) -> None:
        self._drafted = 0
