"""What theory predicts of speculative decoding from alpha, gamma and costs.

The formulas are those of Leviathan et al. 2022 (arXiv 2211.17192). alpha: the probability that a
drafted token is accepted. gamma: drafted tokens per round. tau: emitted tokens per round. c: the
cost of a draft step. Every cost is in one-token target passes.
"""

from __future__ import annotations

MOST_GAMMA = 16  # the longest draft that `best_gamma` considers, and the longest on the page

TYPICAL_EPSILON = 0.09
TYPICAL_DELTA = 0.3
"""Typical acceptance keeps a draft x where p(x) > min(epsilon, delta exp(-H(p))): the values of
Medusa's published code, delta the root of epsilon (Cai et al. 2024, arXiv 2401.10774)."""


def predicted_tau(alpha: float, gamma: int) -> float:
    """Expected tokens per round, (1 - alpha^(gamma + 1)) / (1 - alpha), if acceptances are
    independent (equation 1)."""
    return gamma + 1.0 if alpha == 1.0 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def predicted_speedup(alpha: float, gamma: int, c: float) -> float:
    """Expected speed-up, tau(gamma) / (gamma c + 1) (theorem 3.8)."""
    return speedup_at(alpha, gamma, step=c, one=1.0, wide=1.0)


def speedup_at(alpha: float, gamma: int, *, step: float, one: float, wide: float) -> float:
    """Expected speed-up from the costs of three passes, in any unit: tau(gamma) one / (gamma step +
    wide).

    step: a draft step. one, wide: a target pass over one token and over gamma + 1 tokens. Theorem
    3.8 assumes that both take equally long. In a batch they do not: the pass over more tokens
    becomes limited by arithmetic (Liu et al. 2024, arXiv 2406.14066, "goodput"; Sadhukhan et al.
    2024, arXiv 2408.11049, "MagicDec"). For a batch, the costs are those of passes over all its
    rows, and each row keeps as many tokens as its own verdict.
    """
    return predicted_tau(alpha, gamma) * one / (gamma * step + wide)


def best_gamma(
    alpha: float, c: float, extra_token: float = 0.0, *, least: int = 0, most: int = MOST_GAMMA
) -> tuple[int, float]:
    """The gamma from `least` to `most` with the highest predicted speed-up, and that speed-up.

    It is tau(gamma) / (gamma c + 1 + gamma extra_token): theorem 3.8, but with a target pass whose
    cost grows by `extra_token` for each drafted token that it judges.
    """
    speeds = {
        gamma: speedup_at(alpha, gamma, step=c, one=1.0, wide=1 + gamma * extra_token)
        for gamma in range(least, most + 1)
    }
    best = max(speeds, key=speeds.__getitem__)
    return best, speeds[best]
