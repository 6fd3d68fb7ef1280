"""Make what the parts of a run share: its context with seeded draws, the path on which an engine
drafts and judges, and the rule that judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from .draws import HostDraws
from .lanes import LANES, Lane
from .numpy_path import NumpyPath
from .registry import verdict_kind
from .settings import TOKEN_VERDICT, Settings
from .types import RunContext

if TYPE_CHECKING:
    from .protocols import DecodingPath, Engine, RandomSource, Rule
    from .types import JudgedRound


def make_context(
    settings: Settings,
    vocab: int,
    device: torch.device,
    other_rule: Rule | None,
    lane: Lane,
    memory: Sequence[Sequence[int]] = (),
) -> RunContext:
    """Make the context that all parts of a run share.

    Each lane has its own stream of random numbers: with the same numbers, two would agree
    more often than independent samples do.
    """
    stream = np.random.SeedSequence(settings.seed, spawn_key=_stream_key(lane))
    draws: RandomSource
    if device.type == "cpu":
        draws = HostDraws(stream)
    else:
        seed = int(stream.generate_state(1, np.uint64)[0] >> 1)
        draws = torch.Generator(device).manual_seed(seed)
    return RunContext(
        settings=settings,
        vocab=vocab,
        device=device,
        draws=draws,
        other_rule=other_rule,
        drafter_draws=HostDraws(stream.spawn(1)[0]),
        memory=memory,
    )


def _stream_key(lane: Lane) -> tuple[int, ...]:
    """The key of a lane's stream: it depends on the lane's name alone, not on the other lanes."""
    if lane in LANES:
        return (LANES.index(lane),)
    return (len(LANES), *lane.encode())


def plain_path(engine: Engine, run: RunContext) -> DecodingPath:
    """Make the plainest path: in the host's memory if everything is there, else on any device."""
    if engine.device.type == run.device.type == "cpu":
        return NumpyPath(engine, run)
    from .tensor_path import TensorPath

    return TensorPath(engine, run)


def other_rule_of(settings: Settings) -> Rule | None:
    """The rule of the settings' verdict if it is another than the token rule, else None: each path
    has its own form of the token rule."""
    if settings.effective_verdict == TOKEN_VERDICT:
        return None
    kind = verdict_kind(settings.effective_verdict)
    if kind.package is not None:
        from .foreign import checked_rule  # not needed for ours

        return checked_rule(kind)
    return kind.decide


def verdict_check_of(settings: Settings) -> Callable[[JudgedRound], None] | None:
    """A check of each verdict before it is committed, if another package provides the rule."""
    kind = verdict_kind(settings.effective_verdict)
    if kind.package is None:
        return None
    from .foreign import check_verdict

    return partial(check_verdict, kind)
