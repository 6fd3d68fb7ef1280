"""The one measurement behind `bench` and `sweep`: a way writes a prompt's text, which is a sample.

`by_turns` measures every way on every prompt; a sweep, which decides after each sample what is
worth measuring next, calls `measure` itself. Tables, ratios and recommendations are views of
samples.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import truediv
from typing import TypeVar

import torch
from tqdm import tqdm

from ..core.lanes import LANE_LABELS, Lane
from ..core.messages import TextPrompt
from ..core.threads import use_threads
from ..runs.trace import Trace
from ..runs.uncertainty import Spread, spread

T = TypeVar("T")
HERE = "specviz"


@dataclass(frozen=True, slots=True)
class Variant:
    """What a rate belongs to: a line of the comparison.

    who: `HERE`, transformers' `generate()`, or a server and how it was timed. threads: 0 where a
    server does not report them. gamma: drafted tokens per round, 0 for the target alone and where a
    server does not report it.
    """

    who: str
    lane: Lane
    threads: int = 0
    gamma: int = 0

    @property
    def label(self) -> str:
        """Its short name: the lane of this program, or who else wrote."""
        if self.who == HERE:
            return LANE_LABELS[self.lane]
        return self.who

    def __str__(self) -> str:
        parts = [LANE_LABELS[self.lane], self.who]
        if self.threads == 1:
            parts.append("1 thread")
        elif self.threads > 1:
            parts.append(f"{self.threads} threads")
        if self.gamma:
            parts.append(f"drafts of {self.gamma}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Writing:
    """The result of a way for a prompt. rates: tokens per second; the threads of their variants are
    those of the way. trace: of a race. text: of a server's answer."""

    rates: Mapping[Variant, float] = field(default_factory=dict)
    trace: Trace | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """A way to write texts. threads: that its passes get, 0 for the usual number."""

    name: str
    write: Callable[[TextPrompt], Writing]
    threads: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """A text that was written and timed. prompt: its index. repeat: from 0."""

    way: Way
    prompt: int
    repeat: int
    writing: Writing

    @property
    def race(self) -> Trace:
        """The trace of a sample that is a race."""
        assert self.writing.trace is not None
        return self.writing.trace


def measure(way: Way, prompt: TextPrompt, index: int, repeat: int = 0) -> Sample:
    """Write the text of a prompt; the sample keeps the prompt's index. Raises `SpecvizError`."""
    with computing_threads(way.threads):
        writing = way.write(prompt)
    return Sample(way=way, prompt=index, repeat=repeat, writing=writing)


def by_turns(
    ways: Sequence[Way],
    prompts: Sequence[TextPrompt],
    repeats: int,
    after_warmup: Callable[[], None] = lambda: None,
) -> Iterator[Sample]:
    """Measure every way on every prompt, `repeats` times; yields the samples.

    In a turn all ways write one prompt, and each turn begins with another way, so that slow changes
    of the machine's speed affect all in the same way. A turn on the first prompt comes before and
    is not counted: what is compiled, allocated or read once is not measured. after_warmup: called
    after it. Raises `SpecvizError`.
    """
    for way in ways:
        measure(way, prompts[0], 0)
    after_warmup()
    for turn in tqdm(range(repeats * len(prompts)), unit="turn", disable=None, leave=False):
        repeat, index = divmod(turn, len(prompts))
        for way in rotated(ways, turn):
            yield measure(way, prompts[index], index, repeat)


@contextmanager
def computing_threads(count: int) -> Iterator[None]:
    """Within, torch and compiled passes share their work among `count` threads; 0 changes
    nothing."""
    if not count:
        yield
        return
    usual_count = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with use_threads(count):
            yield
    finally:
        torch.set_num_threads(usual_count)


def rotated(values: Sequence[T], by: int) -> list[T]:
    """The values in order, beginning `by` further on, so that none is always first."""
    turned = deque(values)
    turned.rotate(-by)
    return list(turned)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The variants of samples, compared. rates: tokens per second of each, by turn."""

    rates: dict[Variant, list[float]]

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> Comparison:
        """Collect the rates. Variants that could not be timed in every turn are left out."""
        rates: dict[Variant, list[float]] = defaultdict(list)
        for sample in samples:
            for variant, rate in sample.writing.rates.items():
                variant_with_threads = replace(variant, threads=sample.way.threads)
                rates[variant_with_threads].append(rate)
        turns = max(map(len, rates.values()), default=0)
        timed_in_every_turn = {
            variant: values for variant, values in rates.items() if len(values) == turns
        }
        return cls(timed_in_every_turn)

    def best(self, variants: Iterable[Variant], lane: Lane | None = None) -> Variant:
        """The variant of these with the highest median, of one lane or of all."""
        candidates = [variant for variant in variants if lane in (None, variant.lane)]
        return max(candidates, key=lambda variant: statistics.median(self.rates[variant]))

    def spread(self, variant: Variant) -> Spread:
        """The median and the quartiles of a variant's rates."""
        return spread(self.rates[variant])

    def ratio(self, variant: Variant, reference: Variant) -> Spread:
        """The rate of a variant over that of the reference, turn by turn."""
        return spread(map(truediv, self.rates[variant], self.rates[reference]))
