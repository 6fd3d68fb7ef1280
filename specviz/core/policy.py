"""Policies for the number of tokens that the next round drafts, and the theory's predictions.

A policy uses the verdicts of finished rounds, and the draft's distributions up to the token that
was drafted last. So whether a token is drafted is settled before it is drawn, and no policy can
change the output distribution; a rule that left a token out because of what was drawn would change
it. No policy reads a clock, so a seeded run repeats.

The formulas are those of Leviathan et al. 2022 (arXiv 2211.17192). alpha: the probability that a
drafted token is accepted. gamma: drafted tokens per round. tau: emitted tokens per round. c: the
cost of a draft step. Every cost is in one-token target passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from .registry import drafter_kind
from .settings import Settings

MAX_GAMMA = 16  # the longest draft that `best_gamma` considers, unless a run drafted more

PRIOR_ALPHA = 0.7  # `OptimalGamma`'s estimate of alpha before the first judged draft
PRIOR_JUDGED = 2.0  # the weight of that estimate, in judged drafts
FIRST_ACCEPTED = 4.0  # accepted drafts assumed at the start, when drafts are expected to pay
DECAY = 0.9  # each round multiplies the weight of older drafts by this: about ten rounds count
IDLE_DECAY = 0.97  # the same factor for a round that drafted nothing
PRIOR_SPEED = 1.5  # `ConfidenceGamma`'s estimate of the speed-up before the first round
PRIOR_ROUNDS = 5.0  # the weight of that estimate
EXPONENTS = [2 ** (halves / 2) for halves in range(-8, 5)]  # allowed by a `Calibration`
# Confidences are clipped to these: no draft is certain.
LOWEST_CONFIDENCE = 1e-6
HIGHEST_CONFIDENCE = 1 - 1e-4
MAX_IDLE_ROUNDS = 12  # in a row without drafts; the next one drafts one token


class DraftCosts(NamedTuple):
    """The costs of drafting, in one-token passes of the target.

    c: a draft step. extra_token: one more token in a target pass. reads_again: whether the next
    target pass reads a round's kept tokens again if the round rejected a draft.
    """

    c: float
    extra_token: float
    reads_again: bool = False


class Policy:
    """A policy that drafts the same number of tokens in every round.

    gamma: the most tokens that the next round drafts. min_confidence: the threshold for the product
    of the drafted tokens' confidences: the token at which it falls below is the last one
    (`tensor_draws.DraftEnd`).
    """

    min_confidence: float = 0.0

    def __init__(self, gamma: int) -> None:
        self.gamma = gamma

    def observe(self, drafted: int, accepted: int, confidences: Sequence[float] = ()) -> None:
        """Update the policy with a finished round.

        drafted, accepted: how many tokens it drafted, and how many of them were kept. confidences:
        the draft's confidence in each token, if it has any.
        """


class HeuristicGamma(Policy):
    """Two more tokens after a round whose drafts were all kept, one fewer after a rejection.

    Starts at `max_gamma` and stays between 1 and it. A round that drafted nothing changes nothing.
    transformers' assisted generation uses the same rule.
    """

    def __init__(self, max_gamma: int) -> None:
        super().__init__(max_gamma)
        self._max_gamma = max_gamma

    def observe(self, drafted: int, accepted: int, confidences: Sequence[float] = ()) -> None:
        if not drafted:
            return
        change = 2 if accepted == drafted else -1
        self.gamma = max(1, min(self._max_gamma, self.gamma + change))


class OptimalGamma(Policy):
    """The number from 0 to `max_gamma` with the highest expected speed-up.

    Alpha is estimated from the judged drafts of recent rounds, with an optimistic prior: short
    texts would end before a careful estimate has reached the number that pays. If no draft would
    pay, the number is 0. The estimate then returns slowly to the prior, and after
    `MAX_IDLE_ROUNDS` rounds without drafts one token is drafted anyway: the text may have become
    easier.
    """

    def __init__(self, max_gamma: int, costs: DraftCosts) -> None:
        self._max_gamma = max_gamma
        self._costs = costs
        # Over recent rounds, the older ones with less weight.
        self._accepted = FIRST_ACCEPTED
        self._judged = FIRST_ACCEPTED
        self._idle = 0  # rounds without drafts in a row
        self._best = self._best_gamma()
        self.gamma = self._best

    @property
    def evidence(self) -> tuple[float, float]:
        """The weights of the accepted and of the rejected drafts, with those of the prior."""
        accepted = self._accepted + PRIOR_ALPHA * PRIOR_JUDGED
        rejected = self._judged - self._accepted + (1 - PRIOR_ALPHA) * PRIOR_JUDGED
        return accepted, rejected

    def observe(self, drafted: int, accepted: int, confidences: Sequence[float] = ()) -> None:
        judged = accepted + (accepted < drafted)
        if drafted:
            decay = DECAY
            self._idle = 0
        else:
            decay = IDLE_DECAY
            self._idle += 1
        self._accepted = decay * self._accepted + accepted
        self._judged = decay * self._judged + judged
        self._best = self._best_gamma()
        self.gamma = self._best
        if self._idle >= MAX_IDLE_ROUNDS:
            self.gamma = max(1, self._best)

    def _best_gamma(self) -> int:
        tau = partial(expected_tau, *self.evidence)
        best, _ = _fastest(tau, self._costs, range(self._max_gamma + 1))
        return best


class Calibration:
    """The probability that a draft is kept: its confidence to the power of an exponent.

    The exponent is the likeliest one by the judged drafts of the run, with a prior: its logarithm
    to the base of 2 is normally distributed, with mean 0 and standard deviation 1. A draft that
    hesitates where its target does is right more often than it says, above all in greedy runs: of
    the built-in pair's drafts 87 of 100 hold, at a mean confidence of 0.21.
    """

    def __init__(self) -> None:
        self._log_likelihoods = [-(math.log2(exponent) ** 2) / 2 for exponent in EXPONENTS]
        self.exponent = 1.0

    def observe(self, confidences: Sequence[float], accepted: int) -> None:
        """Update the exponent with judged drafts: each one's confidence, and the number kept."""
        clipped = [
            min(max(LOWEST_CONFIDENCE, confidence), HIGHEST_CONFIDENCE)
            for confidence in confidences
        ]
        logs = [math.log(confidence) for confidence in clipped]
        for index, exponent in enumerate(EXPONENTS):
            log_kept = exponent * sum(logs[:accepted])
            log_rejected = sum(math.log1p(-math.exp(exponent * log)) for log in logs[accepted:])
            self._log_likelihoods[index] += log_kept + log_rejected
        likeliest = self._log_likelihoods.index(max(self._log_likelihoods))
        self.exponent = EXPONENTS[likeliest]


class ConfidenceGamma(OptimalGamma):
    """Up to `max_gamma` tokens, as long as the draft is sure of them; none if no draft would pay.

    One more token is worth its cost if the probability that all drafts are kept, it among them, is
    at least the number of tokens that the lane writes in the same time: its tokens over the costs
    of its rounds, both since the run began. That probability is the product of the drafts'
    confidences, as `Calibration` reads them. A threshold of it is the best rule
    (Huang et al. 2024, arXiv 2405.19715, "SpecDec++").
    """

    def __init__(self, max_gamma: int, costs: DraftCosts) -> None:
        super().__init__(max_gamma, costs)
        self._price = costs.c + costs.extra_token
        self._to_reread = 0  # kept tokens that the next target pass reads again
        self._written = PRIOR_ROUNDS * PRIOR_SPEED  # tokens
        self._spent = PRIOR_ROUNDS  # one-token target passes
        self._calibration = Calibration()
        self._set_limits()

    def observe(self, drafted: int, accepted: int, confidences: Sequence[float] = ()) -> None:
        super().observe(drafted, accepted)
        self._written += accepted + 1
        self._spent += 1 + drafted * self._price + self._to_reread * self._costs.extra_token
        if accepted == drafted:
            self._to_reread = 0
        elif self._costs.reads_again:
            self._to_reread += accepted + 1
        self._calibration.observe(confidences[: accepted + 1], accepted)
        self._set_limits()

    def _set_limits(self) -> None:
        if self._best > 0:
            self.gamma = self._max_gamma
        self.min_confidence = self._break_even()

    def _break_even(self) -> float:
        """The product of confidences at which one more token is worth its cost."""
        worth = min(1.0, self._price * self._written / self._spent)
        return float(worth ** (1 / self._calibration.exponent))


def make_policy(settings: Settings, costs: Callable[[], DraftCosts]) -> Policy:
    """Make the policy that the settings name. Without one (`Settings.adapts`), every round may
    draft gamma tokens: a sweep, which predicts all settings in one way, needs that as a policy."""
    if not settings.adapts:
        return Policy(settings.gamma)
    if settings.gamma_policy == "heuristic":
        return HeuristicGamma(settings.gamma)
    # Copied drafts have no confidence.
    if settings.gamma_policy == "confidence" and drafter_kind(settings.drafter).has_model:
        return ConfidenceGamma(settings.gamma, costs())
    return OptimalGamma(settings.gamma, costs())


def predicted_tau(alpha: float, gamma: int) -> float:
    """Expected tokens per round, (1 - alpha^(gamma + 1)) / (1 - alpha), if acceptances are
    independent (equation 1)."""
    if alpha == 1.0:
        return gamma + 1.0
    return (1 - alpha ** (gamma + 1)) / (1 - alpha)


def expected_tau(accepted: float, rejected: float, gamma: int) -> float:
    """The mean of `predicted_tau` if alpha has the distribution Beta(accepted, rejected), as after
    so many judged drafts, both > 0.

    The k-th moment of that distribution is the product over
    i < k of (accepted + i) / (accepted + rejected + i). tau is convex in alpha, so this is more
    than tau at the mean: uncertainty favours longer drafts.
    """
    tau = 1.0
    all_accepted = 1.0  # the probability that the first drafts are
    for judged in range(gamma):
        all_accepted *= (accepted + judged) / (accepted + rejected + judged)
        tau += all_accepted
    return tau


def speedup_at(alpha: float, gamma: int, *, step: float, one: float, wide: float) -> float:
    """Expected speed-up from the costs of three passes, in any unit: tau(gamma) one / (gamma step +
    wide).

    step: a draft step. one, wide: a target pass over one token and over gamma + 1 tokens. Theorem
    3.8 assumes that both take equally long: with 1 for both, step is c. In a batch they do not: the
    pass over more tokens becomes limited by arithmetic (Liu et al. 2024, arXiv 2406.14066,
    "goodput"; Sadhukhan et al. 2024, arXiv 2408.11049, "MagicDec"). For a batch, the costs are
    those of passes over all its rows, and each row keeps as many tokens as its own verdict.
    """
    return predicted_tau(alpha, gamma) * one / (gamma * step + wide)


def best_gamma(
    alpha: float, costs: DraftCosts, *, min_gamma: int = 0, max_gamma: int = MAX_GAMMA
) -> tuple[int, float]:
    """The gamma from `min_gamma` to `max_gamma` with the highest predicted speed-up, and that
    speed-up.

    It is tau(gamma) / (gamma c + 1 + gamma extra_token): theorem 3.8, but with a target pass whose
    cost grows by `extra_token` for each drafted token that it judges, and with `reads_again` for
    each token of `tokens_read_again`.
    """
    tau = partial(predicted_tau, alpha)
    return _fastest(tau, costs, range(min_gamma, max_gamma + 1))


def _fastest(tau: Callable[[int], float], costs: DraftCosts, gammas: range) -> tuple[int, float]:
    """The gamma with the highest speed-up, and that speed-up. tau: tokens per round, by gamma."""
    speeds = {}
    for gamma in gammas:
        rows: float = gamma
        if costs.reads_again:
            rows += tokens_read_again(tau, gamma, costs.extra_token)
        speeds[gamma] = tau(gamma) / (gamma * costs.c + (1 + rows * costs.extra_token))
    best = max(speeds, key=speeds.__getitem__)
    return best, speeds[best]


def tokens_read_again(tau: Callable[[int], float], gamma: int, extra_token: float) -> float:
    """The mean number of tokens that a target with running states reads again in a round.

    A round that rejects a draft leaves the tokens that it keeps to the next pass, and to all that
    follow up to a round that keeps all its drafts. The probability of such a round is a =
    tau(gamma) - tau(gamma - 1), so these are 1 / a passes in the mean.

    A round without drafts also ends it, once the tokens read again have cost as much as a pass
    (`running_engine`). With t = tau(gamma) tokens a round, the i-th pass reads i t tokens again, at
    e = extra_token each: k passes cost about k^2 t e / 2, which is 1 for k = sqrt(2 / (t e)). They
    read k t / 2 = sqrt(t / (2 e)) tokens again in the mean.
    """
    if gamma == 0:
        return 0.0
    tokens = tau(gamma)
    all_kept = tokens - tau(gamma - 1)
    after_rejections = tokens - (gamma + 1) * all_kept
    limit = math.inf
    if extra_token:
        limit = math.sqrt(tokens / (2 * extra_token))
    if all_kept == 0.0:
        return limit
    return min(after_rejections / all_kept, limit)
