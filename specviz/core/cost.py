"""What a pass of a model should cost, computed from its size alone.

A seeded run must repeat, and the number of tokens that a round drafts decides which random numbers
are drawn: whatever chooses that number may look at sizes and verdicts, but never at a clock. So
the cost of a pass of few tokens is the bytes of weights that it reads, plus the cost of its calls
and of its arithmetic, counted as the bytes that could be read in the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from .engine import RemoteModel
from .layers import first_layers
from .model_facts import leaf_count, logits_device, parameter_bytes, pass_bytes, pass_weights
from .policy import DraftCosts
from .registry import engine_kind

if TYPE_CHECKING:
    from .drafter import Drafter
    from .pair import Pair
    from .protocols import Engine, LanguageModel
    from .running_states import RunningStates
    from .states import DraftHead

EAGER = "eager"  # the name of the engine that runs transformers' own modules

# What each further token adds to a target pass off the processor, in passes of one token: hardware
# that waits for its memory processes several tokens in the same time. Measured on an H100.
EXTRA_TOKEN_ELSEWHERE = 0.02

# The time to unpack and multiply one packed weight, whatever its bits are, in bytes of a large
# model that could be read in that time, in compiled passes on two cores of an AMD EPYC.
UNPACKING = 1.15
LARGE = 200_000_000  # bytes of a model too large for any processor's cache


def pass_cost(model: LanguageModel, engine: str, layers: int | None = None) -> float:
    """The cost of a one-token pass, in bytes; with `layers`, of a pass through the first ones only.

    engine: the name of the one that runs it. Raises `PairError` where the layers cannot be found,
    or if the cost of a model elsewhere is unknown.
    """
    if isinstance(model, RemoteModel):
        return model.pass_cost()
    if layers is not None:
        model = first_layers(model, layers)
    weights = pass_weights(model)
    plain_bytes = pass_bytes(model) - weights.packed_bytes
    bytes_read = plain_bytes + UNPACKING * weights.packed
    kernel_cost = engine_kind(engine).kernel_cost
    device = torch.device(model.device)
    if kernel_cost is not None and device.type != "cpu":
        return bytes_read + kernel_cost(model, engine)
    return bytes_read + _call_cost([model], device, engine)


def draft_costs(drafter: Drafter, target_engine: Engine, pair: Pair) -> DraftCosts:
    """The costs of drafting with this drafter for this target."""
    return DraftCosts(
        c=drafter.step_cost() / pass_cost(pair.target, target_engine.name),
        extra_token=extra_token_cost(pair.target, target_engine.name),
        reads_again=reads_again(pair.target, target_engine.name),
    )


def reads_again(target: LanguageModel, engine: str) -> bool:
    """Whether kept tokens are read again after a rejection. engine: the name of the target's."""
    states = _states(target, engine)
    return states is not None and not states.one_by_one


def _states(model: LanguageModel, engine: str) -> RunningStates | None:
    """The model's `RunningStates`, if any; only the engine `EAGER` runs models that have some."""
    if engine != EAGER or isinstance(model, RemoteModel):
        return None
    from .running_states import running_states  # which needs transformers

    return running_states(model)


def head_step_cost(head: DraftHead, engine: str) -> float:
    """The cost in bytes of a step of a head along its chain, as `pass_cost` counts it."""
    bytes_read = sum(parameter_bytes(part) for part in head.step_parts)
    return bytes_read + _call_cost(head.step_parts, head.device, engine)


def _call_cost(modules: Sequence[Any], device: torch.device, engine: str) -> float:
    """The cost in bytes of calling all modules that have no modules in them."""
    calls = sum(map(leaf_count, modules))
    kind = engine_kind(engine)
    if device.type == "cpu":
        return calls * kind.call_on_cpu
    return calls * kind.call_elsewhere


def extra_token_cost(target: LanguageModel, engine: str) -> float:
    """The cost of one more token in a target pass, in passes of one token.

    engine: the name of the one that runs it.
    """
    states = _states(target, engine)
    if states is not None and states.one_by_one:
        return 1.0
    if isinstance(target, RemoteModel) or logits_device(target).type != "cpu":
        return EXTRA_TOKEN_ELSEWHERE
    kind = engine_kind(engine)
    if kind.arithmetic is None or pass_bytes(target) < LARGE:
        return kind.extra_token
    weights = pass_weights(target)
    token_cost = (
        kind.arithmetic.plain * weights.plain
        + kind.arithmetic.packed * weights.packed
        + kind.arithmetic.integer * weights.integer
    )
    return token_cost / pass_cost(target, engine)
