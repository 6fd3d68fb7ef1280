"""What engines have in common: the base of those of this machine, a target elsewhere, prefill."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from .clock import now
from .paths import plain_path
from .stopping import check_stop

if TYPE_CHECKING:
    from .drafter import Drafter
    from .protocols import DecodingPath, Engine, WholeRounds
    from .types import RunContext


class OwnEngine:
    """What engines of this machine have in common; see `protocols.Engine`."""

    top_logprobs_only = False

    @property
    def catch_up_due(self) -> bool:
        """Never: few engines read anything twice."""
        return False

    def path(self, run: RunContext) -> DecodingPath:
        """Call by call, in the host's memory if all of it lies there."""
        return plain_path(self, run)  # type: ignore[arg-type]

    def share_passes(self, threads: int) -> None:
        """Torch's threads share them, whose number is the same for all."""

    def take_over(self, other: Engine) -> bool:
        """Whether it did: few engines can."""
        return False

    def whole_rounds(
        self, path: DecodingPath, drafter: Drafter, ids: Sequence[int]
    ) -> WholeRounds | None:
        """None: the host takes part in each step of a round."""
        return None

    def round_context(self) -> AbstractContextManager[None]:
        """A context that changes nothing."""
        return nullcontext()

    def round_fields(self) -> dict[str, Any]:
        """No fields beside those of every round."""
        return {}


class ModelElsewhere:
    """A target that is no module of transformers here, so that it brings its own engine."""

    def make_engine(self, vocab: int, states: bool) -> Engine:
        """As `engine_choice.make_engine`."""
        raise NotImplementedError

    def pass_cost(self) -> float:
        """As `core.cost.pass_cost`; raises `PairError` if nobody knows."""
        raise NotImplementedError

    def header_fields(self, prompt_ids: Sequence[int]) -> dict[str, Any]:
        """Fields of a `Header` that only this target knows."""
        return {}


def prefill(engine: Engine, ids: Sequence[int]) -> float:
    """Feed `ids` (possibly none) into an empty engine; returns synchronised seconds. Raises
    `Stopped`."""
    check_stop()
    start = now(engine.device)
    if ids:
        engine.forward(torch.tensor(ids, device=engine.device), keep=1)
        engine.rollback(engine.length)
    return now(engine.device) - start
