"""What every drafter, gamma policy or verdict does on the page's prompts and on held-out ones.

alpha, tau and the drafted tokens depend on the models, the prompts and the seeds alone; c and the
speed-up depend on the machine too.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

from ...core.race import race
from ...environment import ASSETS
from ...kinds import swept_drafters, verdict_names
from ...pairs.pair import Pair
from ...prompts import prompts_file
from ...runs.metrics import Metrics, compute_metrics
from ...runs.tables import markdown, shown_number
from ...runs.trace import Trace
from ...runs.uncertainty import Estimate, geometric_mean, mean
from ...settings import GAMMA_POLICIES, Settings
from ..racing import all_with, over_prompts, seeded
from ..sweep.agenda import impossible_drafters


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
    pair: Pair,
    variants: Mapping[str, Settings],
    groups: Mapping[str, Sequence[str]],
    repeats: int,
) -> list[Figures]:
    """The figures of every variant on every set of prompts. groups: prompts by the set's name.

    All variants run in turn on each prompt, so that slow changes of the machine's speed affect all
    of them in the same way. Sampled repeats draw with other seeds.
    """
    runs: dict[tuple[str, str, str], list[Metrics]] = defaultdict(list)
    for again, (group, prompts) in product(range(repeats), groups.items()):
        for prompt, (name, settings) in product(prompts, variants.items()):
            trace = Trace.from_events(race(pair, prompt, seeded(settings, again)))
            runs[name, group, prompt].append(compute_metrics(trace))
    found: list[Figures] = []
    for name, (group, prompts) in product(variants, groups.items()):
        own = [runs[name, group, prompt] for prompt in prompts]
        figures = {
            "alpha": over_prompts(own, lambda m: m.alpha, mean, fmean),
            "tau": over_prompts(own, lambda m: m.tau, mean, fmean),
            "drafted": over_prompts(own, lambda m: m.drafted / max(1, m.rounds), mean, fmean),
            "c": over_prompts(own, lambda m: m.c, mean),
            "speedup": over_prompts(own, lambda m: m.speedup, _geometric),
        }
        found.append(Figures(name, group, **figures))
    return found


def _geometric(speedups: list[float]) -> Estimate:
    return geometric_mean([*map(math.log, speedups)])


def comparison_report(
    what: str, pair: Pair, prompts: Sequence[str], settings: Settings, options: argparse.Namespace
) -> list[Figures]:
    """Compare all of `variants_of(what)`, print a Markdown table for each temperature, and return
    all rows. Beside held-out prompts the page's own are used."""
    groups: dict[str, Sequence[str]] = {}
    if not options.prompts and not options.shape:
        presets = prompts_file(ASSETS / "pair" / "presets.json")
        groups["presets"] = [question.text for question in presets]
    groups["own" if options.prompts else "held-out"] = prompts
    first = next(iter(groups.values()))[0]
    sets = " and ".join(f"{len(some)} prompts of {name}" for name, some in groups.items())
    found: list[Figures] = []
    with all_with(options.threads[0]) if options.threads else nullcontext():
        for temperature in options.temperatures:
            at = replace(settings, temperature=temperature)
            variants, left_out = variants_of(what, pair, first, at)
            print(
                f"temperature {temperature:g}, gamma {at.gamma}, {at.max_new_tokens} tokens, "
                f"{options.repeats} runs of each of {sets}\n",
                flush=True,
            )
            rows = compare(pair, variants, groups, options.repeats)
            print(*table_lines(rows), *left_out, "", sep="\n", flush=True)
            found += rows
    return found


def table_lines(rows: Iterable[Figures]) -> Iterator[str]:
    """A Markdown table."""
    cells = []
    for row in rows:
        estimates = (row.alpha, row.tau, row.speedup)
        alpha, tau, speedup = (one.shown() if one else "–" for one in estimates)
        drafted = shown_number(row.drafted.value if row.drafted else None, 1)
        c = shown_number(row.c.value if row.c else None, 3)
        cells.append([f"`{row.variant}`", row.prompts, alpha, tau, drafted, c, speedup])
    head = ("", "prompts", "alpha", "tau", "drafted per pass", "c", "speed-up")
    yield from markdown(head, cells)
