"""What each drafter and each gamma policy gives, on prompts of different character."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..decoding.race import race
from ..environment import ASSETS
from ..errors import PairError, SpecvizError
from ..models.pair import Pair
from ..report.metrics import compute_metrics
from ..settings import DRAFTERS, GAMMA_POLICIES, Settings
from ..trace import Trace

PROMPTS = ASSETS / "pair" / "presets.json"


@dataclass(frozen=True, slots=True)
class Score:
    """A way to draft on one prompt: median speed-up over the repeats, tau, and drafts a round."""

    speedup: float
    tau: float
    drafted: float


Way = tuple[str, str]  # drafter, gamma policy
Scores = dict[Way, dict[str, Score]]


def preset_prompts() -> dict[str, str]:
    """The page's presets by name. Raises `SpecvizError` if they are missing."""
    try:
        entries = json.loads(PROMPTS.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecvizError("presets.json cannot be read as a JSON list of prompts.") from error
    return {entry["name"]: entry["prompt"] for entry in entries}


def contest(
    pair: Pair, prompts: Mapping[str, str], settings: Settings, repeats: int
) -> tuple[Scores, list[str]]:
    """The scores of every way on every prompt, and a sentence for each drafter left out.

    All ways take turns on each prompt, in one process, so that the machine's drift hits all
    alike; each race warms up by itself.
    """
    ways, left_out = _possible(pair, next(iter(prompts.values())), settings)
    traces: dict[tuple[Way, str], list[Trace]] = {}
    for _ in range(repeats):
        for name, prompt in prompts.items():
            for way in ways:
                run = Trace.from_events(race(pair, prompt, _drafting(settings, way)))
                traces.setdefault((way, name), []).append(run)
    return {way: {name: _score(traces[way, name]) for name in prompts} for way in ways}, left_out


def _possible(pair: Pair, prompt: str, settings: Settings) -> tuple[list[Way], list[str]]:
    ways: list[Way] = []
    left_out: list[str] = []
    for drafter in DRAFTERS:
        if drafter == "none":
            continue
        try:
            next(race(pair, prompt, replace(settings, drafter=drafter, max_new_tokens=1)))
        except PairError as error:
            left_out.append(f"{drafter}: {error}")
        else:
            ways += [(drafter, policy) for policy in GAMMA_POLICIES]
    return ways, left_out


def _drafting(settings: Settings, way: Way) -> Settings:
    return replace(settings, drafter=way[0], gamma_policy=way[1])


def _score(traces: Sequence[Trace]) -> Score:
    figures = [compute_metrics(trace) for trace in traces]
    first = figures[0]  # a seeded run repeats, so that all have the same rounds
    speedup = statistics.median(m.speedup or 0.0 for m in figures)
    return Score(speedup, first.tau or 0.0, first.drafted / max(1, first.rounds))


def score_lines(scores: Scores, names: Sequence[str]) -> Iterator[str]:
    """A Markdown table: a speed-up for each prompt, with tau and the mean draft length."""
    yield "| drafter | gamma | " + " | ".join(names) + " |"
    yield "|---|---|" + "---|" * len(names)
    for (drafter, policy), by_prompt in scores.items():
        cells = (
            f"{s.speedup:.2f} (τ {s.tau:.2f}, {s.drafted:.1f} drafted)"
            for s in map(by_prompt.__getitem__, names)
        )
        yield f"| {drafter} | {policy} | " + " | ".join(cells) + " |"
