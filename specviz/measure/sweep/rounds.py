"""The rounds that a configuration would run along a known text, counted without running them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...core.policy import make_policy, predicted_tau
from ...runs.metrics import ratio
from ...settings import Settings
from .acceptance import Acceptance, Along

DRAWS = 32  # simulated runs of a text that was sampled; a greedy one needs one run


@dataclass(slots=True)
class RoundCounts:
    """What happened in some rounds, as sums that can be added.

    lengths: drafted tokens per round -> rounds. judged, accepted: tokens by their place in the
    draft. emitted: tokens.
    """

    lengths: Counter[int] = field(default_factory=Counter)
    judged: Counter[int] = field(default_factory=Counter)
    accepted: Counter[int] = field(default_factory=Counter)
    emitted: int = 0

    def add(self, drafted: int, judged: int, accepted: int, emitted: int) -> None:
        """Count one round; judged tokens are its first, and accepted ones the first of them."""
        self.lengths[drafted] += 1
        self.judged.update(range(judged))
        self.accepted.update(range(accepted))
        self.emitted += emitted

    def merge(self, others: Iterable[RoundCounts]) -> RoundCounts:
        """These counts with those of `others` added."""
        total = RoundCounts(
            Counter(self.lengths), Counter(self.judged), Counter(self.accepted), self.emitted
        )
        for other in others:
            total.lengths += other.lengths
            total.judged += other.judged
            total.accepted += other.accepted
            total.emitted += other.emitted
        return total

    @property
    def rounds(self) -> int:
        return self.lengths.total()

    @property
    def tau(self) -> float | None:
        return ratio(self.emitted, self.rounds)

    @property
    def tau_predicted(self) -> float | None:
        """tau from alpha, if acceptances were independent, with the drafted numbers of the
        rounds."""
        alpha = ratio(self.accepted.total(), self.judged.total())
        if alpha is None:
            return None
        tokens = sum(predicted_tau(alpha, length) * n for length, n in self.lengths.items())
        return ratio(tokens, self.rounds)

    def figures(self) -> dict[str, Any]:
        """tau, alpha, alpha_by_position, efficiency, and drafted tokens per round."""
        drafted = sum(length * rounds for length, rounds in self.lengths.items())
        places = range(max(self.lengths, default=0))
        return {
            "tau": self.tau,
            "alpha": ratio(self.accepted.total(), self.judged.total()),
            "alpha_by_position": tuple(ratio(self.accepted[i], self.judged[i]) for i in places),
            "efficiency": ratio(self.accepted.total(), drafted),
            "drafted": drafted / max(1, self.rounds),
        }


@dataclass(frozen=True, slots=True)
class KnownText:
    """A text that the target wrote. ids: the prompt, of `begin` tokens, and what followed. budget:
    most tokens that may be committed. limit: the target's context."""

    ids: tuple[int, ...]
    begin: int
    budget: int
    limit: int | None


def predicted_counts(text: KnownText, along: Along, settings: Settings) -> RoundCounts:
    """The rounds of a run that writes this text: exactly if its drafts are certain, else of
    `DRAWS` runs together."""
    counts, draws = RoundCounts(), random.Random(0)  # nosec B311
    for _ in range(1 if along.certain else DRAWS):
        for one in simulated_rounds(text, along.run(), settings, draws):
            counts.add(*one)
    return counts


def simulated_rounds(
    text: KnownText, found: Acceptance, settings: Settings, draws: random.Random
) -> Iterator[tuple[int, int, int, int]]:
    """Drafted, judged, accepted and emitted tokens of each round of a run that writes this text.

    It is the loop of `core.loop` with the verdicts drawn from `found`; they are certain if the
    text is greedy.
    """
    policy = make_policy(settings, lambda: found.costs)
    length, end = text.begin, len(text.ids)
    while length < end:
        room = min(text.budget - length - 1, found.room(length), policy.gamma)
        if text.limit is not None:
            room = min(room, text.limit - length)
        chances = found.chances(length, room) if room > 0 else []
        kept = _kept(chances, draws)
        left = end - length
        policy.observe(len(chances), kept)
        if kept >= left:  # the text ends within the accepted drafts
            yield len(chances), left, left, left
            return
        yield len(chances), min(kept + 1, len(chances)), kept, kept + 1
        length += kept + 1


def _kept(chances: list[float], draws: random.Random) -> int:
    for place, chance in enumerate(chances):
        if chance < 1.0 and (chance <= 0.0 or draws.random() >= chance):
            return place
    return len(chances)
