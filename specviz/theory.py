"""What theory predicts of speculative decoding, from alpha, gamma and prices alone."""

from __future__ import annotations

MOST_GAMMA = 16  # the longest draft that is looked at, as long as the page lets anyone ask for


def predicted_tau(alpha: float, gamma: int) -> float:
    """Expected tokens per round, (1 - alpha^(gamma + 1)) / (1 - alpha), if acceptances are
    independent (Leviathan et al. 2022, arXiv 2211.17192, equation 1)."""
    return gamma + 1.0 if alpha == 1.0 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def predicted_speedup(alpha: float, gamma: int, c: float) -> float:
    """Expected speed-up, tau(gamma) / (gamma c + 1) (the same paper, theorem 3.8)."""
    return predicted_tau(alpha, gamma) / (gamma * c + 1)


def best_gamma(
    alpha: float,
    c: float,
    judging: float = 1.0,
    judged: float = 1.0,
    *,
    least: int = 0,
    most: int = MOST_GAMMA,
) -> tuple[int, float]:
    """The gamma from `least` to `most` with the highest predicted speed-up, and that speed-up.

    judging: the price of judging `judged` drafts, from which that of other gammas is guessed.
    """
    speeds = {
        gamma: predicted_tau(alpha, gamma) / (gamma * c + judging_price(gamma, judging, judged))
        for gamma in range(least, most + 1)
    }
    best = max(speeds, key=speeds.__getitem__)
    return best, speeds[best]


def judging_price(gamma: int, judging: float, judged: float) -> float:
    """The price of judging gamma drafts, where judging `judged` of them was measured.

    On a straight line from 1, that of a pass over one token. If several were cheaper than one,
    the line would fall below any real price, so that the measured one is taken for all.
    """
    if gamma == 0 or not judged:
        return 1.0
    return judging if judging < 1 else 1 + (judging - 1) * gamma / judged
