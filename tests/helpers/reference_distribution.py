"""The distribution that a lane must sample from, and tests of samples against it.

It is computed in fp64 from forward passes without caches, and shares no code with the package.
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


def processed_distribution(logits: Sequence[float] | np.ndarray, settings: Settings) -> np.ndarray:
    """The probabilities after temperature, top-k and top-p, computed by their definitions."""
    scores = np.asarray(logits, dtype=np.float64)
    order = np.argsort(-scores, kind="stable")
    if settings.temperature == 0.0:
        order = order[:1]
        weights = np.ones_like(scores)
    else:
        weights = np.exp((scores - scores.max()) / settings.temperature)
    if settings.top_k:
        order = order[: settings.top_k]
    if settings.top_p < 1.0:
        so_far = np.cumsum(weights[order])
        before = np.concatenate([[0.0], so_far[:-1]])
        order = order[before < settings.top_p * so_far[-1]]
    probabilities = np.zeros_like(scores)
    probabilities[order] = weights[order] / weights[order].sum()
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


SLICES = 6  # of the vocabulary at a token, of about the same probability


def text_p_value(
    model: Any, prompt: Sequence[int], text: Sequence[int], settings: Settings, draft: Any = None
) -> float:
    """The p-value of one long text of any model.

    At every token the vocabulary is sorted and cut into slices. The test compares how often a token
    of each slice was written with the probabilities of the slices.

    The vocabulary is sorted by the model's own probability, or with a draft by q / p: a wrong
    verdict writes too many or too few tokens that the draft prefers. Probabilities differ from
    token to token, so the counts' own covariance replaces that of Pearson's test. Slices with fewer
    than 5 expected tokens are pooled.
    """
    p = laws_along(model, prompt, text, settings)
    tokens = np.arange(len(text))
    if not p[tokens, text].all():
        return 0.0
    if draft is None:
        scores = p
    else:
        scores = laws_along(draft, prompt, text, settings) / np.maximum(p, 1e-12)
    order = np.argsort(-scores, axis=1, kind="stable")
    sorted_p = np.take_along_axis(p, order, axis=1)
    if p.shape[1] <= SLICES:
        slices = np.broadcast_to(np.arange(p.shape[1]), p.shape)  # one for each word
    else:
        before = sorted_p.cumsum(1) - sorted_p
        slices = np.clip(before * SLICES, 0, SLICES - 1).astype(int)
    chances = np.stack([(sorted_p * (slices == n)).sum(1) for n in range(SLICES)], axis=1)
    place = (order == np.array(text)[:, None]).argmax(1)
    written = slices[tokens, place][:, None] == np.arange(SLICES)
    often = chances.sum(0) >= 5
    often[np.flatnonzero(often)[-1]] = False  # what is left is one slice, and known from the others
    off = (written - chances)[:, often].sum(0)
    chances = chances[:, often]
    covariance = np.diag(chances.sum(0)) - chances.T @ chances
    return combined_p_value([(float(off @ np.linalg.solve(covariance, off)), len(off))])


def laws_along(
    model: Any, prompt: Sequence[int], text: Sequence[int], settings: Settings
) -> np.ndarray:
    """Compute the probabilities at every token of a text, [tokens, vocab], in one pass without a
    cache.
    """
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *text]]), use_cache=False).logits[0]
    rows = logits[len(prompt) - 1 : -1].double().numpy()
    return np.array([processed_distribution(row, settings) for row in rows])


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
