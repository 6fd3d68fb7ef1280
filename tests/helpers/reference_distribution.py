"""The distribution that a lane must sample from, and a test of samples against it.

It is computed in fp64 from forward passes without caches. It shares no code with
specviz.core.sampling, which it checks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from mpmath import gammainc

from specviz import Settings

Ids = tuple[int, ...]
Distribution = dict[Ids, float]  # a sequence of ids -> its probability


def processed_distribution(logits: Sequence[float], settings: Settings) -> np.ndarray:
    """The probabilities after temperature, top-k and top-p, computed by their definitions."""
    scores = np.asarray(logits, dtype=np.float64)
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    if settings.temperature == 0.0:
        order = order[:1]
        weights = np.ones_like(scores)
    else:
        weights = np.exp((scores - scores.max()) / settings.temperature)
    if settings.top_k:
        order = order[: settings.top_k]
    whole, so_far, kept = sum(weights[i] for i in order), 0.0, []
    for i in order:
        if settings.top_p < 1.0 and so_far >= settings.top_p * whole:
            break
        kept.append(i)
        so_far += weights[i]
    probabilities = np.zeros_like(scores)
    probabilities[kept] = weights[kept] / so_far
    return probabilities


def next_token_distribution(model: Any, ids: Sequence[int], settings: Settings) -> np.ndarray:
    """The probabilities of the token after `ids`, from a forward pass without a cache."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0, -1]
    return processed_distribution(logits.double().tolist(), settings)


def continuation_distribution(
    model: Any, prompt: Sequence[int], length: int, settings: Settings, eos: Iterable[int] = ()
) -> Distribution:
    """The distribution of the first `length` tokens after `prompt`; an id of `eos` ends a text."""
    distribution: Distribution = {(): 1.0}
    for _ in range(length):
        longer: Distribution = {}
        for ids, mass in distribution.items():
            if ids and ids[-1] in eos:
                longer[ids] = mass
                continue
            row = next_token_distribution(model, [*prompt, *ids], settings)
            longer.update({(*ids, i): mass * p for i, p in enumerate(row) if p > 0})
        distribution = longer
    return distribution


def p_value(samples: Sequence[Ids], distribution: Distribution) -> float:
    """The p-value of Pearson's chi-square test of samples against a distribution."""
    return combined_p_value([chi_square(samples, distribution)])


def chain_p_value(model: Any, ids: Sequence[int], settings: Settings) -> float:
    """The p-value of one long run of a Markov chain: each id, given the id before it."""
    followers: dict[int, list[Ids]] = {}
    for before, after in pairwise(ids):
        followers.setdefault(before, []).append((after,))
    return combined_p_value(
        chi_square(samples, continuation_distribution(model, [i], 1, settings))
        for i, samples in followers.items()
    )


def chi_square(samples: Sequence[Ids], distribution: Distribution) -> tuple[float, int]:
    """Pearson's statistic and its degrees of freedom; infinite if a sample is impossible.

    Cells with fewer than 5 expected samples are pooled.
    """
    counts = Counter(samples)
    if not counts.keys() <= distribution.keys():
        return math.inf, 1
    cells = [(counts[ids], mass * len(samples)) for ids, mass in distribution.items()]
    usual = [cell for cell in cells if cell[1] >= 5]
    rare = [cell for cell in cells if cell[1] < 5]
    if sum(expected for _, expected in rare) >= 5:
        usual.append((sum(seen for seen, _ in rare), sum(expected for _, expected in rare)))
    return sum((seen - expected) ** 2 / expected for seen, expected in usual), len(usual) - 1


def combined_p_value(statistics: Iterable[tuple[float, int]]) -> float:
    """The p-value of the sum of independent chi-square statistics, each with its degrees."""
    usable = [one for one in statistics if one[1] > 0]
    if not usable:
        return 1.0
    statistic, degrees = (sum(one) for one in zip(*usable, strict=True))
    if statistic == math.inf:
        return 0.0
    return float(gammainc(degrees / 2, statistic / 2, regularized=True))
