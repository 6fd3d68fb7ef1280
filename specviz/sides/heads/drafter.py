"""Drafts from a head on the target: a chain that begins at the target's own hidden states.

The head is an EAGLE-3 head, the target's own multi-token prediction layers, or an assistant that
reads the target's cache too. Each is an engine that reads tokens and states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch

from ...base.errors import PairError
from ...core.clock import now
from ...core.cost import head_step_cost
from ...core.drafter import Drafter
from ...core.ngrams import NgramIndex
from ...core.pair import Pair
from ...core.states import make_head_engine
from ...core.types import Draft, RunContext

if TYPE_CHECKING:
    from ...core.protocols import DecodingPath, StateEngine


SHARE = 3  # next to copies, a head drafts a third of the wanted tokens: its steps cost time
# The expected number of accepted tokens of a copy at the start, by the length of its match.
EXPECTED = {4: 2.0, 3: 1.2, 2: 0.5}
MIN_EXPECTATION = 0.35  # below this expectation the head drafts, to the end of the run
DECAY = 0.8  # each verdict multiplies the weight of older ones by this: about five copies count


class HeadDrafter(Drafter):
    """The pair's head. Each pass of the target leaves hidden states. After the verdict the head
    gets those of the kept tokens, and the next chain begins with the last of them."""

    def __init__(self, pair: Pair, run: RunContext, target_path: DecodingPath) -> None:
        if pair.head is None:
            raise PairError(
                "this pair has no head: name one instead of a draft, as in 'TARGET+HEAD', or "
                "choose another drafter."
            )
        self._head = pair.head
        self._target_engine = cast("StateEngine", target_path.engine)
        self._target_engine.keep_states(pair.head.states)
        self.engine = make_head_engine(pair.head, run.vocab, self._target_engine)
        self.engine_name = self.engine.name
        self._path = self.engine.path(run)
        self._max_new_tokens = run.settings.max_new_tokens
        self._received = 0  # tokens whose states the head has

    def prefill(self, ids: Sequence[int]) -> float:
        start = now(self.engine.device)
        length = len(ids) + 1
        self._path.prepare("draft", length, length + self._max_new_tokens)
        if ids:
            self.engine.prefill(torch.tensor(ids), self._target_engine.states)
            self._received = len(ids)
        return now(self.engine.device) - start

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        if not self._received:
            return None  # the target has not read a single token
        return self._path.draft(ids, count, min_confidence=self.min_confidence)

    def rollback(self, length: int) -> None:
        # The head read the drafts with its own states.
        self.engine.rollback(min(self.engine.length, self._received + 1))
        # The target's last pass began where the head's states end.
        new_states = self._target_engine.states[: length - self._received]
        self.engine.receive(new_states)
        self._received = length

    def step_cost(self) -> float:
        return head_step_cost(self._head, self.engine.name)


class NgramHeadDrafter(HeadDrafter):
    """Copies, which cost nothing, where enough of them are expected to be accepted; otherwise the
    head drafts.

    The expectation is learnt in the run, by the length of a copy's match, and twice as many tokens
    are copied. All of this depends on committed tokens alone, so q is the distribution that each
    token was drawn from.
    """

    def __init__(self, pair: Pair, run: RunContext, target_path: DecodingPath) -> None:
        super().__init__(pair, run, target_path)
        self._run = run
        self._expected = dict(EXPECTED)
        self._index = NgramIndex()
        self._size = 0  # of the match that was copied in this round; 0 if none was
        self._begin = 0  # tokens of the text before that copy

    def draft(self, ids: Sequence[int], count: int) -> Draft | None:
        self._index.extend(ids)
        size, start = self._index.match()
        expected = self._expected.get(size, 0.0)
        if expected < MIN_EXPECTATION:
            return super().draft(ids, math.ceil(count / SHARE))
        self._size = size
        self._begin = len(ids)
        wanted = max(2, math.ceil(2 * expected))
        copy = self._index.copied(start, min(count, wanted))
        return Draft.certain(copy, self._run)

    def rollback(self, length: int) -> None:
        super().rollback(length)
        if self._size:
            accepted = length - self._begin
            before = self._expected[self._size]
            self._expected[self._size] = DECAY * before + (1 - DECAY) * accepted
            self._size = 0
