"""Judge sampled texts by chi-square: against the distribution that the server itself lists, and
against the texts of a baseline.

A test that finds nothing proves nothing unless it would have found something. So each test also
gets a sampler that is wrong on purpose, with as many texts, and must reject it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..inspect.equivalence import (
    SIGNIFICANCE,
    Comparison,
    Outcome,
    chi_square,
    tail,
    two_sample_chi_square,
)
from ..sides.watched.engines import Prompt
from .asking import AuditedModel, Ids, sampling_settings
from .report import Control, Sampled

TEMPERATURE = 0.7
TOP_K = 20  # as many as vLLM lists by default
LENGTHS = (2, 3)  # tokens of a text that are compared; the first comes without drafts
LENGTH = 3
SAMPLED_TOKENS = 5  # requested tokens of a text, so that its second token can come from drafts
MIN_EXPANDED = 0.02  # probability of a beginning that is extended
BLOCK = 16  # beginnings in a request
COLDER = 0.8  # the control's temperature over the right one
TRIALS = 100
MIN_CAUGHT = 0.95  # share of its trials in which the control must be caught
MIN_TEXTS = 20  # texts that are drawn even after the time budget
SIZES = (100, 200, 400, 800, 1600, 3200)
UNLISTED: Outcome = (-1,)
UNLISTED_SHARE = 1e-3  # the share of texts that may be outside the list, by ties at its end
MANY_EARLY_ENDS = 5  # texts that end early; with so many a prompt cannot be used
OTHER_SEEDS = 1_000_000  # so that no text of the baseline shares its seed with one of the server


@dataclass(frozen=True, slots=True)
class ListedLaw:
    """The distribution of short texts after a prompt, by the log-probabilities that a server lists.

    listed: after each extended beginning, the likeliest next tokens with their log-probabilities at
    temperature 1; the beginning () is the prompt alone.
    """

    prompt: Ids
    listed: Mapping[Ids, Mapping[int, float]]

    def probabilities(self, temperature: float, length: int = LENGTH) -> dict[Outcome, float]:
        """The probability of each text of at most `length` tokens under top-k sampling, where k is
        the number of listed tokens."""
        law: dict[Outcome, float] = {}
        self._add(law, (), 1.0 - UNLISTED_SHARE, temperature, length)
        law[UNLISTED] = UNLISTED_SHARE
        return law

    def _add(
        self,
        law: dict[Outcome, float],
        beginning: Ids,
        probability: float,
        temperature: float,
        length: int,
    ) -> None:
        if len(beginning) == length or beginning not in self.listed:
            law[beginning] = probability
            return
        for token_id, share in softmax(self.listed[beginning], temperature).items():
            self._add(law, (*beginning, token_id), probability * share, temperature, length)


def softmax(logprobs: Mapping[int, float], temperature: float) -> dict[int, float]:
    """The probabilities of the listed tokens at a temperature, if no others can be drawn."""
    highest = max(logprobs.values())
    weights = {}
    for token_id, logprob in logprobs.items():
        weights[token_id] = math.exp((logprob - highest) / temperature)
    whole = sum(weights.values())
    return {token_id: weight / whole for token_id, weight in weights.items()}


def listed_law(
    model: AuditedModel, prompt: Ids, temperature: float, length: int = LENGTH
) -> ListedLaw:
    """Ask a server for the distribution of short texts after a prompt. Raises `ServerError`, and
    `PairError` if it lists nothing."""
    listed: dict[Ids, Mapping[int, float]] = {}
    law = ListedLaw(prompt, listed)
    beginnings: list[Ids] = [()]
    for depth in range(length):
        for first in range(0, len(beginnings), BLOCK):
            block = beginnings[first : first + BLOCK]
            prefixes = [prompt + beginning for beginning in block]
            lists = model.listings(prefixes, TOP_K)
            listed.update(zip(block, lists, strict=True))
        beginnings = []
        for text, probability in law.probabilities(temperature, depth + 1).items():
            is_whole = len(text) == depth + 1 and text != UNLISTED
            if is_whole and probability >= MIN_EXPANDED:
                beginnings.append(text)
    return law


def cell_of(ids: Ids, law: Mapping[Outcome, float]) -> Outcome:
    """The outcome of the law that a text belongs to."""
    for length in range(len(ids), 0, -1):
        if ids[:length] in law:
            return ids[:length]
    return UNLISTED


def draws(
    model: AuditedModel, prompt: Prompt, temperature: float, count: int, first_seed: int = 0
) -> Iterator[tuple[Ids, str]]:
    """Draw `count` independent texts, each with its ids and its text. Raises `ServerError`."""
    for seed in range(first_seed, first_seed + count):
        settings = sampling_settings(temperature, TOP_K, SAMPLED_TOKENS, seed)
        yield model.draw(prompt, settings)


def samples_needed(law: ListedLaw, temperature: float) -> tuple[int | None, float]:
    """The fewest of `SIZES` texts with which the control is caught, and the share of its trials in
    which it is; None for the number if even the most are too few."""
    share = 0.0
    for size in SIZES:
        length = best_length(law, temperature, size)
        share = control_for(law, temperature, size, length).caught
        if share >= MIN_CAUGHT:
            return size, share
    return None, share


def best_length(law: ListedLaw, temperature: float, samples: int) -> int:
    """The text length at which `samples` texts catch the control most often. It depends only on the
    law and not on the drawn texts, so it does not bias the test."""

    def caught(length: int) -> float:
        return control_for(law, temperature, samples, length).caught

    return max(LENGTHS, key=caught)


def control_for(law: ListedLaw, temperature: float, samples: int, length: int) -> Control:
    """Give the test of fit texts of a sampler that uses a lower temperature than it was told."""
    right = law.probabilities(temperature, length)
    wrong = law.probabilities(COLDER * temperature, length)
    outcomes = list(wrong)
    generator = np.random.default_rng(0)
    trials = generator.multinomial(samples, _normed(wrong), size=TRIALS)
    caught = 0
    for counts in trials.tolist():
        counts_by_outcome = dict(zip(outcomes, counts, strict=True))
        p_value = _p_of_fit(counts_by_outcome, right, samples)
        caught += p_value < SIGNIFICANCE
    return Control(_colder(temperature), caught=caught / TRIALS, trials=TRIALS)


def _normed(law: Mapping[Outcome, float]) -> NDArray[np.float64]:
    weights = np.array(list(law.values()), np.float64)
    return np.asarray(weights / weights.sum(), np.float64)


def _colder(temperature: float) -> str:
    return (
        f"a sampler that uses temperature {COLDER * temperature:.2g} instead of {temperature:.2g}"
    )


def _p_of_fit(counts: Mapping[Outcome, int], law: Mapping[Outcome, float], samples: int) -> float:
    statistic, degrees = chi_square(counts, law, samples)
    p_value = tail(statistic, degrees)
    if p_value is None:
        return 1.0
    return p_value


def fit(texts: Sequence[Ids], law: ListedLaw, temperature: float, length: int) -> Sampled:
    """Test whether texts of a server have the distribution that it lists."""
    expected = law.probabilities(temperature, length)
    counts = Counter(cell_of(ids[:length], expected) for ids in texts)
    statistic, degrees = chi_square(counts, expected, len(texts))
    name = f"texts of {length} tokens"
    if length == 1:
        name = "first tokens"
    return Sampled(
        name=f"{name} against the server's listed distribution",
        length=length,
        samples=len(texts),
        cells=degrees + 1,
        statistic=statistic,
        degrees=degrees,
        p_value=tail(statistic, degrees),
        control=control_for(law, temperature, len(texts), length),
    )


def compare_samples(
    texts: Sequence[Outcome], baseline_texts: Sequence[Outcome], control: Control
) -> Sampled:
    """Test whether texts of both servers have one distribution."""
    comparison = two_sample_chi_square(texts, baseline_texts)
    return Sampled(
        name="short texts against the baseline's",
        length=comparison.length,
        samples=len(texts),
        cells=len(comparison.cells),
        statistic=comparison.statistic,
        degrees=comparison.degrees,
        p_value=comparison.p_value,
        control=control,
    )


def drawn_control(
    wrong: Sequence[Outcome], baseline_texts: Sequence[Outcome], temperature: float
) -> Control:
    """Give the test of two samples texts that a server drew at a lower temperature."""
    comparison = two_sample_chi_square(wrong, baseline_texts)
    is_caught = _is_refused(comparison)
    return Control(_colder(temperature), caught=float(is_caught), trials=1)


def simulated_control(law: ListedLaw, temperature: float, samples: int) -> Control:
    """Give the test of two samples texts of the listed distribution and of a colder one."""
    trials = TRIALS // 5
    generator = np.random.default_rng(0)
    right = law.probabilities(temperature)
    wrong = law.probabilities(COLDER * temperature)
    caught = 0
    for _ in range(trials):
        right_texts = _simulated(right, samples, generator)
        wrong_texts = _simulated(wrong, samples, generator)
        comparison = two_sample_chi_square(wrong_texts, right_texts)
        caught += _is_refused(comparison)
    return Control(_colder(temperature), caught=caught / trials, trials=trials)


def _simulated(
    law: Mapping[Outcome, float], samples: int, generator: np.random.Generator
) -> list[Outcome]:
    counts = generator.multinomial(samples, _normed(law))
    texts: list[Outcome] = []
    for outcome, count in zip(law, counts.tolist(), strict=True):
        texts += [outcome] * count
    return texts


def _is_refused(comparison: Comparison) -> bool:
    return comparison.p_value is not None and comparison.p_value < SIGNIFICANCE


def outcome_of(ids: Ids, text: str) -> Outcome:
    """The compared part of a drawn text: its first ids, or its characters if the server reports no
    ids."""
    if not ids:
        return tuple(map(ord, text))
    return ids[:LENGTH]


def ends_early(texts: Sequence[Ids]) -> int:
    """The number of texts that are shorter than the compared length."""
    return sum(len(ids) < LENGTH for ids in texts)
