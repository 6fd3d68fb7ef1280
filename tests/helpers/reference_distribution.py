"""The law that a lane must follow, worked out in fp64 from uncached forwards, and its test.

Written apart from specviz.decoding.sampling on purpose: it shares no line with what it checks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.stats import chi2

from specviz import Settings

Ids = tuple[int, ...]
Law = dict[Ids, float]


def processed(logits: Sequence[float], settings: Settings) -> np.ndarray:
    """Temperature, top-k, top-p by their definitions, one entry at a time."""
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
    law = np.zeros_like(scores)
    law[kept] = weights[kept] / so_far
    return law


def next_token(model: Any, ids: Sequence[int], settings: Settings) -> np.ndarray:
    """The law of the token after `ids`, from a forward pass without any cache."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0, -1]
    return processed(logits.double().tolist(), settings)


def continuations(
    model: Any, prompt: Sequence[int], length: int, settings: Settings, eos: Iterable[int] = ()
) -> Law:
    """The law of the first `length` tokens after `prompt`, cut after an id of `eos`."""
    law: Law = {(): 1.0}
    for _ in range(length):
        longer: Law = {}
        for ids, mass in law.items():
            if ids and ids[-1] in eos:
                longer[ids] = mass
                continue
            row = next_token(model, [*prompt, *ids], settings)
            longer.update({(*ids, i): mass * p for i, p in enumerate(row) if p > 0})
        law = longer
    return law


def chi_square(samples: Sequence[Ids], law: Law) -> float:
    """How likely samples of `law` are to lie at least as far from it as these do."""
    return likelihood([distance(samples, law)])


def transitions(model: Any, ids: Sequence[int], settings: Settings) -> float:
    """The same for one long run of a chain: each id against the law of what follows the last."""
    followers: dict[int, list[Ids]] = {}
    for before, after in pairwise(ids):
        followers.setdefault(before, []).append((after,))
    laws = {i: continuations(model, [i], 1, settings) for i in followers}
    return likelihood([distance(samples, laws[i]) for i, samples in followers.items()])


def distance(samples: Sequence[Ids], law: Law) -> tuple[float, int]:
    """Pearson's statistic and its degrees of freedom; infinite if a sample is impossible.

    Cells that expect fewer than 5 are pooled.
    """
    counts = Counter(samples)
    if not counts.keys() <= law.keys():
        return math.inf, 1
    cells = [(counts[ids], mass * len(samples)) for ids, mass in law.items()]
    usual = [cell for cell in cells if cell[1] >= 5]
    rare = [cell for cell in cells if cell[1] < 5]
    if sum(expected for _, expected in rare) >= 5:
        usual.append((sum(seen for seen, _ in rare), sum(expected for _, expected in rare)))
    return sum((seen - expected) ** 2 / expected for seen, expected in usual), len(usual) - 1


def likelihood(distances: Iterable[tuple[float, int]]) -> float:
    """The chance that independent distances add up to as much as these or more."""
    usable = [one for one in distances if one[1] > 0]
    if not usable:
        return 1.0
    return float(chi2.sf(sum(one[0] for one in usable), sum(one[1] for one in usable)))
