"""Protocols of the parts of a run: types alone, which no race imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .draws import Distributions
from .events import RaceEvents
from .lanes import Lane
from .settings import Settings
from .types import Doubles, Draft, Floats, JudgedRound, RunContext, TimedRound

if TYPE_CHECKING:
    from .drafter import Drafter


class LanguageModel(Protocol):
    """A causal language model, as `AutoModelForCausalLM` returns it: the interface of every target
    and every draft, also of those that run elsewhere."""

    @property
    def config(self) -> Any:
        """Of transformers."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def can_generate(self) -> bool: ...

    def get_output_embeddings(self) -> Any:
        """Return the module that gives logits, or None."""
        ...

    def parameters(self) -> Iterator[Tensor]: ...

    def named_modules(self) -> Iterator[tuple[str, Any]]: ...


class UniformDraws(Protocol):
    """A source of uniform draws that is not a generator."""

    def take(self, count: int) -> Tensor:
        """Return the next draws, fp64 [count] in [0, 1)."""
        ...


RandomSource: TypeAlias = torch.Generator | UniformDraws
"""A source of uniform draws."""


Rule: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, RandomSource], Tensor]
"""A rule that judges a draft run, with the signature of `tensor_verdict.decide_on_tensors`."""

HostRule: TypeAlias = Callable[
    [Floats, Floats, Sequence[int], Sequence[float], float], tuple[int, int]
]
"""The same for rows in the host's memory, with the signature of `verdict.decide_in_numpy`."""


class Engine(Protocol):
    """A causal language model and the tokens that its cache holds.

    name: of the implementation, for headers and the page. length: cached tokens.
    top_logprobs_only: whether logits are log-probabilities of the likeliest tokens only, with -inf
    for all others. catch_up_due: whether the next round should draft nothing, so that the engine
    need not read tokens again (`running_engine`).
    """

    device: torch.device

    @property
    def top_logprobs_only(self) -> bool: ...

    @property
    def catch_up_due(self) -> bool: ...

    @property
    def name(self) -> str: ...

    @property
    def length(self) -> int: ...

    def forward(
        self, ids: Tensor, keep: int, layers: int | None = None, temperature: float = 1.0
    ) -> Tensor:
        """Append int64 `ids` [n] to the cache; return the logits of the last `keep`, divided by
        `temperature`: fp32 [keep, vocab].

        layers: run only the first `layers`, the final norm and the head. The caches of the other
        layers then lack these tokens, so they must be rolled back before the next whole pass.
        Raises `ModelError` if the model cannot run.
        """
        ...

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens. Call it once after the prefill, with its
        length, once after each verdict, and after passes through the first layers only, with the
        length at which they began."""
        ...

    def limit_threads(self, threads: int) -> None:
        """Limit the threads that share a pass to `threads`, if the engine has its own threads."""
        ...

    def take_over(self, other: Engine) -> bool:
        """Copy the cache of another engine into this empty one, if both run the same model in the
        same form; return whether it did."""
        ...

    def path(self, run: RunContext) -> DecodingPath:
        """Make this engine's path for a run. Raises `PairError` if the engine lacks something that
        the run's settings need."""
        ...

    def whole_rounds(
        self, path: DecodingPath, drafter: Drafter, ids: Sequence[int]
    ) -> WholeRounds | None:
        """Rounds that the device runs by itself, for `path` of this engine and this drafter; None
        if it cannot. ids: of the prompt, which both have read but for its last token."""
        ...

    def round_context(self) -> AbstractContextManager[None]:
        """Return the context manager for each round of a lane with this engine as its target."""
        ...

    def take_round_fields(self) -> dict[str, Any]:
        """Return this engine's own fields of a `Round`, for the passes since the last call, and
        begin to count anew."""
        ...


class WholeRounds(Protocol):
    """Rounds that a device runs by itself: draft steps, target pass, verdict and the new length.

    They draw the same tokens from the same uniforms as the paths of the two engines.
    """

    def fits(self, ids: Sequence[int], gamma: int) -> bool:
        """Whether the device can run the round after `ids` with `gamma` drafts by itself."""
        ...

    def round(self, ids: Sequence[int], is_followed: bool) -> TimedRound:
        """Run the round after the committed `ids`; the host waits once, for its verdict.

        is_followed: whether another such round follows, however many drafts this one keeps: it is
        enqueued before this one is read. The tensors of the result are valid until the next call.
        """
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Context manager: read the last round's tensors without waiting for the next round."""
        ...


class StateEngine(Engine, Protocol):
    """An engine that can hand out hidden states, for a head that drafts from them."""

    def keep_states(self, layers: Sequence[int]) -> None:
        """Keep the output of the first n layers in each later pass, for each n of `layers`, or
        the final norm if n is `core.layers.FINAL`.

        Call it once, before the first pass. Raises `PairError` if the layers cannot be found.
        """
        ...

    @property
    def states(self) -> Tensor:
        """The kept states of every token of the last pass, side by side: [n, len(layers) * width].
        Valid until the next pass."""
        ...


DraftAtOnce: TypeAlias = Callable[
    [NDArray[np.int64], Doubles, Distributions, int | None, float], Draft
]
"""An engine's optional method that drafts a whole run: (ids [m] to feed, uniforms [n],
distributions to write to, layers, min_confidence) -> a token for each uniform, or fewer by
`min_confidence`. layers, min_confidence: as in `DecodingPath.draft`."""


class DecodingPath(Protocol):
    """How one engine drafts and judges: on the host, on tensors, or as CUDA graphs. Chosen once per
    engine and run (`Engine.path`), since draft and target may run in different engines.

    All paths draw the same tokens from the same uniforms; they differ in how many calls they need.
    """

    @property
    def engine(self) -> Engine: ...

    def prepare(
        self,
        task: Literal["draft", "judge"],
        length: int,
        max_length: int,
        layers: int | None = None,
    ) -> None:
        """Prepare a run from `length` to `max_length` tokens, before any clock runs."""
        ...

    def draft(
        self,
        ids: Sequence[int],
        count: int,
        layers: int | None = None,
        min_confidence: float = 0.0,
    ) -> Draft:
        """Draft `count` tokens (at least 1) after the committed `ids`, drawn one after another from
        the engine's model, or from its first `layers`.

        They are fewer if the product of their confidences (`tensor_draws.DraftEnd`) falls below
        `min_confidence`: the token at which it does is the last. `count` uniforms are drawn in any
        case.
        """
        ...

    def judge(self, ids: Sequence[int], draft: Draft | None) -> JudgedRound:
        """Run one pass over the last of the committed `ids` and the drafts, and judge the drafts.

        The tensors of the result are valid until the next call.
        """
        ...


class WatchedPair(Protocol):
    """A server that drafts and judges on its own, in place of a pair: only `race` takes it."""

    @property
    def drafters(self) -> tuple[str, ...]: ...

    def settings(self, **values: Any) -> Settings: ...

    def race(
        self, prompt: Any, lanes: Mapping[Lane, Settings], memory: object = ()
    ) -> RaceEvents: ...
