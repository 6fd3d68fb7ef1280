"""The one measurement behind `bench` and `sweep`: a writer writes a prompt's text, which is a
sample.

`by_turns` measures every writer on every prompt; a sweep, which decides after each sample what is
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
SPECVIZ = "specviz"


@dataclass(frozen=True, slots=True)
class Variant:
    """What a rate belongs to: a line of the comparison.

    source: `SPECVIZ`, transformers' `generate()`, or a server and how it was timed. threads: 0 if a
    server does not report them. gamma: drafted tokens per round; 0 for the target alone, and if a
    server does not report it.
    """

    source: str
    lane: Lane
    threads: int = 0
    gamma: int = 0

    @property
    def label(self) -> str:
        """Its short name: the lane of specviz, or the other source."""
        if self.source == SPECVIZ:
            return LANE_LABELS[self.lane]
        return self.source

    def __str__(self) -> str:
        parts = [LANE_LABELS[self.lane], self.source]
        if self.threads == 1:
            parts.append("1 thread")
        elif self.threads > 1:
            parts.append(f"{self.threads} threads")
        if self.gamma:
            parts.append(f"drafts of {self.gamma}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Written:
    """What a writer wrote after a prompt. rates: tokens per second by variant, whose threads
    `Comparison.of` fills in. trace: of a race. text: of a server's answer."""

    rates: Mapping[Variant, float] = field(default_factory=dict)
    trace: Trace | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes texts. threads: for its passes; 0 for the usual number."""

    name: str
    write: Callable[[TextPrompt], Written]
    threads: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """A text that was written and timed. prompt: its index. repeat: from 0."""

    writer: Writer
    prompt: int
    repeat: int
    written: Written

    @property
    def race(self) -> Trace:
        """The trace of a sample that is a race."""
        assert self.written.trace is not None
        return self.written.trace


def measure(writer: Writer, prompt: TextPrompt, index: int, repeat: int = 0) -> Sample:
    """Write the text of a prompt; the sample keeps the prompt's index. Raises `SpecvizError`."""
    with computing_threads(writer.threads):
        written = writer.write(prompt)
    return Sample(writer=writer, prompt=index, repeat=repeat, written=written)


def by_turns(
    writers: Sequence[Writer],
    prompts: Sequence[TextPrompt],
    repeats: int,
    after_warmup: Callable[[], None] = lambda: None,
) -> Iterator[Sample]:
    """Measure every writer on every prompt, `repeats` times; yields the samples.

    In a turn every writer writes after the same prompt. Each turn begins with another writer, so
    slow changes of the machine's speed affect all of them equally. A warm-up turn on the first
    prompt is not counted, so that compilation and allocation are not measured. after_warmup: called
    after that turn. Raises `SpecvizError`.
    """
    for writer in writers:
        measure(writer, prompts[0], 0)
    after_warmup()
    for turn in tqdm(range(repeats * len(prompts)), unit="turn", disable=None, leave=False):
        repeat, index = divmod(turn, len(prompts))
        for writer in rotated(writers, turn):
            yield measure(writer, prompts[index], index, repeat)


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
            for variant, rate in sample.written.rates.items():
                variant_with_threads = replace(variant, threads=sample.writer.threads)
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
