"""Drafting with one call of compiled code for a whole run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...core.numpy_path import NumpyPath
from ...core.sampling import SAFE_TEMPERATURE, TIE
from ...core.types import Draft, RunContext
from ...settings import Settings

if TYPE_CHECKING:
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


def suits(settings: Settings) -> bool:
    """Whether drafts are greedy or drawn from a softmax without top-k or top-p."""
    simple = settings.temperature >= SAFE_TEMPERATURE and not settings.truncates
    return settings.greedy or simple
