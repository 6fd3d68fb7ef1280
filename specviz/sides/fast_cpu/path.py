"""Drafting with one call of compiled code for a whole run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
import torch

from ...core.engine import Engine
from ...core.numpy_path import NumpyPath
from ...core.sampling import SAFE_TEMPERATURE, TIE
from ...core.types import Draft, RunContext
from ...settings import Settings
from .engine import CompiledEngine


class CompiledPath(NumpyPath):
    """A `NumpyPath` for an engine and settings that it `suits`.

    It draws the same tokens from the same uniforms. The interpreter's share of a draft step of the
    built-in pair is as long as its pass.
    """

    def __init__(self, engine: CompiledEngine, run: RunContext) -> None:
        super().__init__(engine, run)
        self._compiled = engine
        self._tie = TIE if run.settings.greedy else None

    def draft(self, ids: Sequence[int], count: int, layers: int | None = None) -> Draft:
        rows, engine = self._drafted, self._compiled
        drafted, logits = engine.draft(
            np.array(ids[engine.length :], np.int64),
            self._source.numbers(count),
            rows.rows(count),
            temperature=rows.temperature,
            tie=self._tie,
            layers=layers,
        )
        rows.take(drafted)
        return Draft(rows.ids[count], rows.p[count], torch.from_numpy(logits).split(1))


def suits(engine: Engine, settings: Settings) -> TypeGuard[CompiledEngine]:
    """Whether passes are compiled, and drafts greedy or drawn from a softmax without top-k or
    top-p."""
    simple = settings.temperature >= SAFE_TEMPERATURE and not settings.truncates
    return isinstance(engine, CompiledEngine) and (settings.greedy or simple)
