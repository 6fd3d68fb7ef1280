"""Drafts from a head on the target: a chain that begins at the target's own hidden states.

The head is an EAGLE-3 head, the target's own multi-token prediction layers, or an assistant that
reads the target's cache too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from ...core.cost import head_step_cost
from ...core.drafting import Drafter
from ...core.engine import now
from ...core.header import described
from ...core.protocols import StateEngine
from ...core.states import make_head_engine
from ...core.types import Draft, RunContext
from ...errors import PairError
from ...pairs.pair import Pair

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath


class HeadDrafter(Drafter):
    """The pair's head. Each pass of the target leaves hidden states; after the verdict those of the
    tokens that stay are the head's, and the next chain begins with the last of them."""

    def __init__(self, pair: Pair, run: RunContext, target: DecodingPath) -> None:
        if pair.head is None:
            raise PairError(
                "this pair has no head: name one in the place of the draft, as in "
                "'TARGET+HEAD', or choose another drafter."
            )
        self._head = pair.head
        self._target = cast(StateEngine, target.engine)
        self._target.keep_states(pair.head.states)
        self.engine = make_head_engine(pair.head, run.vocab, self._target)
        self.form = self.engine.form
        self._path = self.engine.path(run)
        self._length = run.settings.max_new_tokens
        self._received = 0  # tokens whose states the head has been given

    def prefill(self, ids: Sequence[int]) -> float:
        start = now(self.engine.device)
        self._path.prepare("draft", len(ids) + 1, len(ids) + 1 + self._length)
        if ids:
            self.engine.prefill(torch.tensor(ids), self._target.states)
            self._received = len(ids)
        return now(self.engine.device) - start

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        if not self._received:
            return None  # the target has not read a single token
        return self._path.draft(ids, count)

    def rollback(self, length: int) -> None:
        # What was drafted was read with states of the head's own.
        self.engine.rollback(min(self.engine.length, self._received + 1))
        self._receive(length)

    def step_cost(self) -> float:
        return head_step_cost(self._head, self.engine.form)

    def _receive(self, length: int) -> None:
        """Take the states of the committed tokens from those of the target's last pass, which began
        where the head's knowledge ends."""
        self.engine.receive(self._target.states[: length - self._received])
        self._received = length


def described_head(pair: Pair, form: str, layers: int | None) -> dict[str, Any]:
    """What a header says of a head: it may have been trained on shorter texts, but it reads any
    length."""
    assert pair.head is not None
    return described(pair.head, form, None)
