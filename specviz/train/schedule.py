"""The schedule of a training: its budget, the learning rate and the window length."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import SpecvizError
from .shapes import CONTEXT


@dataclass(frozen=True)
class Schedule:
    """A budget in steps or minutes, and a learning rate with warm-up, plateau and linear decay.

    minutes, steps: the budget; steps are used if they are above 0. decay: the last share of the
    budget, over which the rate falls to zero. lengths, shares: the window lengths in tokens, from
    `shortest` to `longest`, and the share of the budget for each. Short windows come first: their
    attention costs less, and a model first learns relations between close tokens. Raises
    `SpecvizError` for invalid values.
    """

    minutes: float = 0.0
    steps: int = 0
    warmup_steps: int = 60
    decay: float = 0.6
    lengths: tuple[int, ...] = (256, 512, 1024)
    shortest: int = 8
    longest: int = CONTEXT
    shares: tuple[float, ...] = (0.6, 0.25, 0.15)

    def __post_init__(self) -> None:
        if self.steps <= 0 and not self.minutes > 0:
            raise SpecvizError("A training needs a budget: pass --minutes or --steps above 0.")
        if not 0 < self.decay <= 1:
            raise SpecvizError(f"--decay is {self.decay}: choose a share above 0 and up to 1.")
        if not self.lengths or not all(self.shortest <= n <= self.longest for n in self.lengths):
            raise SpecvizError(
                f"--lengths is {self.lengths}: choose windows of {self.shortest} to {self.longest}."
            )

    def progress(self, step: int, seconds: float) -> float:
        """The spent share of the budget, 0 to 1, by steps if they are limited, else by seconds."""
        if self.steps > 0:
            return min(1.0, step / self.steps)
        return min(1.0, seconds / (60 * self.minutes))

    def rate(self, step: int, progress: float) -> float:
        """The learning rate relative to its peak, 0 to 1."""
        warmup = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        return min(warmup, max(0.0, 1.0 - progress) / self.decay)

    def length(self, progress: float) -> int:
        """Tokens per window at this point of the budget."""
        passed = 0.0
        for length, share in zip(self.lengths, self.shares, strict=False):
            passed += share
            if progress < passed:
                return length
        return self.lengths[-1]
