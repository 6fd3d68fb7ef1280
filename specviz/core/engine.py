"""The base of engines, the base of remote models, and the prefill."""

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


class BaseEngine:
    """The base of all engines, with what most of them do; see `protocols.Engine`."""

    top_logprobs_only = False

    @property
    def catch_up_due(self) -> bool:
        """Always False: few engines read a token twice."""
        return False

    def path(self, run: RunContext) -> DecodingPath:
        """The plain path: `NumpyPath` if everything is in the host's memory, else `TensorPath`."""
        return plain_path(self, run)  # type: ignore[arg-type]

    def limit_threads(self, threads: int) -> None:
        """Do nothing: torch's threads share the passes, and their number is global."""

    def take_over(self, other: Engine) -> bool:
        """Return False: few engines can copy a cache."""
        return False

    def whole_rounds(
        self, path: DecodingPath, drafter: Drafter, ids: Sequence[int]
    ) -> WholeRounds | None:
        """Return None: the host takes part in each step of a round."""
        return None

    def round_context(self) -> AbstractContextManager[None]:
        """An empty context manager."""
        return nullcontext()

    def take_round_fields(self) -> dict[str, Any]:
        """An empty dict: no fields besides those of every round."""
        return {}


class RemoteModel:
    """A target that is not a module of transformers on this machine and has its own engine."""

    def make_engine(self, vocab: int, hidden_states: bool) -> Engine:
        """Make its engine, as `engine_choice.make_engine` does."""
        raise NotImplementedError

    def pass_cost(self) -> float:
        """The cost of a pass, as `core.cost.pass_cost`. Raises `PairError` if it is unknown."""
        raise NotImplementedError

    def header_fields(self, prompt_ids: Sequence[int]) -> dict[str, Any]:
        """The fields of a `Header` that only this target knows."""
        return {}


def prefill(engine: Engine, ids: Sequence[int]) -> float:
    """Feed `ids` (possibly none) into an empty engine; return synchronised seconds. Raises
    `Stopped`."""
    check_stop()
    start = now(engine.device)
    if ids:
        engine.forward(torch.tensor(ids, device=engine.device), keep=1)
        engine.rollback(engine.length)
    return now(engine.device) - start
