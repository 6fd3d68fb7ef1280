"""How many tokens a round drafts, decided before its first one.

Every policy looks at nothing but the verdicts of rounds that are over. The length of a draft is
then known before any of its tokens is drawn, so that no policy can bias the text (stopping
because of the token just drawn would). And none looks at a clock, so that a seeded run repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .settings import Settings
from .theory import best_gamma

PRIOR_ALPHA = 0.7  # what `OptimalGamma` expects before it has seen any verdict
PRIOR_JUDGED = 2.0  # verdicts that this expectation counts for
MEMORY = 0.9  # of older verdicts' weight, what a round leaves: about the last ten rounds count
MEMORY_IDLE = 0.97  # the same for a round that drafted nothing and so brings no news
PROBE = 12  # rounds without drafts, at most, before one token is tried again


class Policy(Protocol):
    """gamma: the most that the next round should draft."""

    @property
    def gamma(self) -> int: ...

    def saw(self, drafted: int, accepted: int) -> None:
        """Take note of a round that is over; `accepted` of its drafts were kept."""
        ...


class FixedGamma:
    """The same number in every round."""

    def __init__(self, gamma: int) -> None:
        self.gamma = gamma

    def saw(self, drafted: int, accepted: int) -> None:
        pass


class HeuristicGamma:
    """Two more after a round whose drafts were all kept, one fewer after a rejection.

    Starts at `most` and stays between 1 and `most`. A round that drafted nothing says nothing.
    The rule is that of transformers' assisted generation.
    """

    def __init__(self, most: int) -> None:
        self.gamma = self._most = most

    def saw(self, drafted: int, accepted: int) -> None:
        if not drafted:
            return
        change = 2 if accepted == drafted else -1
        self.gamma = max(1, min(self._most, self.gamma + change))


class OptimalGamma:
    """The number from 0 to `most` with the highest predicted speed-up,
    tau(gamma) / (gamma c + judging(gamma)) (Leviathan et al. 2022, theorem 3.8).

    alpha is accepted / judged of the last rounds, the older the less, and a prior. c: the price
    of a draft step in one-token target passes; wider: what each judged draft adds to the price
    of a pass. Where no draft would pay the number is 0; as the verdicts age the estimate goes
    back to the prior, and at the latest after `PROBE` such rounds one token is drafted, for a
    text may have become easier.
    """

    def __init__(self, most: int, c: float, wider: float) -> None:
        self._most, self._c, self._wider = most, c, wider
        self._accepted = self._judged = 0.0
        self._idle = 0
        self.gamma = self._best()

    @property
    def alpha(self) -> float:
        """The current estimate."""
        accepted = self._accepted + PRIOR_ALPHA * PRIOR_JUDGED
        return accepted / (self._judged + PRIOR_JUDGED)

    def saw(self, drafted: int, accepted: int) -> None:
        judged = accepted + (accepted < drafted)
        left = MEMORY if drafted else MEMORY_IDLE
        self._accepted = left * self._accepted + accepted
        self._judged = left * self._judged + judged
        self._idle = 0 if drafted else self._idle + 1
        self.gamma = self._best()
        if self._idle >= PROBE:
            self.gamma = max(1, self.gamma)

    def _best(self) -> int:
        return best_gamma(self.alpha, self._c, 1 + self._wider, most=self._most)[0]


def make_policy(settings: Settings, prices: Callable[[], tuple[float, float]]) -> Policy:
    """The policy that the settings name. `prices` gives c and what a wider pass costs."""
    if settings.gamma and settings.gamma_policy == "heuristic":
        return HeuristicGamma(settings.gamma)
    if settings.gamma and settings.gamma_policy == "optimal":
        return OptimalGamma(settings.gamma, *prices())
    return FixedGamma(settings.gamma)
