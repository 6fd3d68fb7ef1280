"""A comparison of all drafters and gamma policies on several kinds of prompts."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..choose.plan import impossible_drafters
from ..decoding.race import race
from ..environment import ASSETS
from ..errors import SpecvizError
from ..models.pair import Pair
from ..report.metrics import compute_metrics
from ..settings import DRAFTERS, GAMMA_POLICIES, Settings
from ..trace import Trace

PROMPTS = ASSETS / "pair" / "presets.json"


@dataclass(frozen=True, slots=True)
class Score:
    """The result of a variant on one prompt.

    speedup: the median over the repeats. tau: emitted tokens per round. drafted: drafted tokens
    per round.
    """

    speedup: float
    tau: float
    drafted: float


Variant = tuple[str, str]  # drafter, gamma policy
Scores = dict[Variant, dict[str, Score]]


def preset_prompts() -> dict[str, str]:
    """The prompts of the page's presets, by name; raises `SpecvizError` if the file is invalid."""
    try:
        entries = json.loads(PROMPTS.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecvizError("presets.json cannot be read as a JSON list of prompts.") from error
    return {entry["name"]: entry["prompt"] for entry in entries}


def compare_drafters(
    pair: Pair, prompts: Mapping[str, str], settings: Settings, repeats: int
) -> tuple[Scores, list[str]]:
    """The scores of every variant on every prompt, and a sentence for each drafter left out.

    All variants run in turn on each prompt, in one process, so that slow changes of the machine's
    speed affect all of them in the same way. Each race warms up by itself.
    """
    variants, left_out = _possible(pair, next(iter(prompts.values())), settings)
    traces: dict[tuple[Variant, str], list[Trace]] = {}
    for _ in range(repeats):
        for name, prompt in prompts.items():
            for variant in variants:
                run = Trace.from_events(race(pair, prompt, _drafting(settings, variant)))
                traces.setdefault((variant, name), []).append(run)
    scores = {one: {name: _score(traces[one, name]) for name in prompts} for one in variants}
    return scores, left_out


def drafters_report(
    pair: Pair, settings: Settings, temperatures: Sequence[float], repeats: int
) -> None:
    """Compare on the prompts of the presets and print a table for each temperature."""
    named = preset_prompts()
    for temperature in temperatures:
        at = replace(settings, temperature=temperature)
        scores, left_out = compare_drafters(pair, named, at, repeats)
        print(f"speed-up at temperature {temperature}, gamma up to {settings.gamma}", end=", ")
        print(f"{settings.max_new_tokens} tokens, medians of {repeats}\n")
        print(*score_lines(scores, list(named)), *left_out, "", sep="\n", flush=True)


def _possible(pair: Pair, prompt: str, settings: Settings) -> tuple[list[Variant], list[str]]:
    every = [name for name in DRAFTERS if name != "none"]
    missing = impossible_drafters(pair, prompt, settings, every)
    possible = [drafter for drafter in every if drafter not in missing]
    variants = [(drafter, policy) for drafter in possible for policy in GAMMA_POLICIES]
    return variants, [f"{drafter}: {reason}" for drafter, reason in missing.items()]


def _drafting(settings: Settings, variant: Variant) -> Settings:
    return replace(settings, drafter=variant[0], gamma_policy=variant[1])


def _score(traces: Sequence[Trace]) -> Score:
    figures = [compute_metrics(trace) for trace in traces]
    first = figures[0]  # a seeded run repeats, so all runs have the same rounds
    speedup = statistics.median(m.speedup or 0.0 for m in figures)
    return Score(speedup, first.tau or 0.0, first.drafted / max(1, first.rounds))


def score_lines(scores: Scores, names: Sequence[str]) -> Iterator[str]:
    """A Markdown table: the speed-up, tau and the mean draft length for each prompt."""
    yield "| drafter | gamma | " + " | ".join(names) + " |"
    yield "|---|---|" + "---|" * len(names)
    for (drafter, policy), by_prompt in scores.items():
        cells = (
            f"{s.speedup:.2f} (τ {s.tau:.2f}, {s.drafted:.1f} drafted)"
            for s in map(by_prompt.__getitem__, names)
        )
        yield f"| {drafter} | {policy} | " + " | ".join(cells) + " |"
