"""What every drafter, gamma policy or verdict does on the page's prompts and on held-out ones.

alpha, tau and the drafted tokens depend on the models, the prompts and the seeds alone; c and the
speed-up depend on the machine too.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...kinds import swept_drafters, verdict_names
from ...pairs.pair import Pair
from ...runs.metrics import Metrics, compute_metrics
from ...runs.tables import markdown, shown_number
from ...runs.uncertainty import Estimate, geometric_mean, mean
from ...settings import GAMMA_POLICIES, Settings
from ..racing import by_prompt, seeded, whole_race
from ..sweep.agenda import impossible_drafters

Groups = Mapping[str, Sequence[str]]
"""Prompts by the name of their set."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One variant on one set of prompts: means over the prompts, with 95% intervals from resampling
    them. A prompt's value is the mean of its runs, for c and the speed-up the median.

    alpha: accepted / judged drafts. tau: tokens per target pass. drafted: drafts per target pass.
    c: cost of a draft step in target passes. speedup: a geometric mean. None where nothing was
    drafted or the runs are too short.
    """

    variant: str
    prompts: str
    alpha: Estimate | None
    tau: Estimate | None
    drafted: Estimate | None
    c: Estimate | None
    speedup: Estimate | None


def variants_of(
    what: str, pair: Pair, prompt: str, settings: Settings
) -> tuple[dict[str, Settings], list[str]]:
    """The settings of everything that this pair can do, by name, and a sentence for each drafter
    that it cannot use. what: "drafters", "policies" (each drafter with each of them) or
    "verdicts"."""
    if what == "verdicts":
        return {name: replace(settings, verdict=name) for name in verdict_names()}, []
    every = list(swept_drafters())
    missing = impossible_drafters(pair, prompt, settings, every)
    left_out = [f"{name}: {reason}" for name, reason in missing.items()]
    drafters = {name: replace(settings, drafter=name) for name in every if name not in missing}
    if what == "drafters":
        return drafters, left_out
    return {
        f"{name}, {policy}": replace(own, gamma_policy=policy)
        for name, own in drafters.items()
        for policy in GAMMA_POLICIES
    }, left_out


def compare(
    pair: Pair, variants: Mapping[str, Settings], groups: Groups, repeats: int
) -> list[Figures]:
    """The figures of every variant on every set of prompts.

    All variants run in turn on each prompt, in one process, so that slow changes of the machine's
    speed affect all of them in the same way. Each race warms up by itself. Sampled repeats draw
    with other seeds.
    """
    runs: dict[tuple[str, str, str], list[Metrics]] = defaultdict(list)
    for again in range(repeats):
        for group, prompts in groups.items():
            for prompt in prompts:
                for name, settings in variants.items():
                    trace = whole_race(pair, prompt, seeded(settings, again))
                    runs[name, group, prompt].append(compute_metrics(trace))
    return [
        _figures(name, group, [runs[name, group, prompt] for prompt in prompts])
        for name in variants
        for group, prompts in groups.items()
    ]


def comparison_report(
    what: str,
    pair: Pair,
    groups: Groups,
    settings: Settings,
    temperatures: Sequence[float],
    repeats: int,
) -> list[Figures]:
    """Compare all of `variants_of(what)` and print a Markdown table for each temperature."""
    first = next(iter(groups.values()))[0]
    sets = " and ".join(f"{len(prompts)} prompts of {name}" for name, prompts in groups.items())
    found: list[Figures] = []
    for temperature in temperatures:
        at = replace(settings, temperature=temperature)
        variants, left_out = variants_of(what, pair, first, at)
        print(f"temperature {temperature:g}, gamma {at.gamma}, {at.max_new_tokens} tokens", end="")
        print(f", {repeats} runs of each of {sets}\n", flush=True)
        rows = compare(pair, variants, groups, repeats)
        print(*table_lines(rows), *left_out, "", sep="\n", flush=True)
        found += rows
    return found


def table_lines(rows: Iterable[Figures]) -> Iterator[str]:
    """A Markdown table."""
    head = ("", "prompts", "alpha", "tau", "drafted per pass", "c", "speed-up")
    yield from markdown(head, [_cells(row) for row in rows])


def _cells(row: Figures) -> list[str]:
    alpha, tau, speedup = (
        "–" if one is None else one.shown() for one in (row.alpha, row.tau, row.speedup)
    )
    drafted, c = (None if one is None else one.value for one in (row.drafted, row.c))
    shown = shown_number(drafted, 1), shown_number(c, 3)
    return [f"`{row.variant}`", row.prompts, alpha, tau, *shown, speedup]


def _figures(variant: str, prompts: str, runs: Sequence[Sequence[Metrics]]) -> Figures:
    """runs: of each prompt."""

    def mean_of(
        figure: Callable[[Metrics], float | None],
        middle: Callable[[list[float]], float] = statistics.fmean,
    ) -> Estimate | None:
        values = by_prompt(runs, figure, middle)
        return mean(values) if values else None

    logs = [math.log(speed) for speed in by_prompt(runs, lambda m: m.speedup) if speed > 0]
    return Figures(
        variant,
        prompts,
        alpha=mean_of(lambda m: m.alpha),
        tau=mean_of(lambda m: m.tau),
        drafted=mean_of(lambda m: m.drafted / max(1, m.rounds)),
        c=mean_of(lambda m: m.c, statistics.median),
        speedup=geometric_mean(logs) if logs else None,
    )
