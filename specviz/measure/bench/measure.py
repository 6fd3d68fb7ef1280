"""Measurement of the lanes and of transformers' `generate()` on the same prompts, in turn."""

from __future__ import annotations

import copy
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch

from ...core.eager import EagerEngine
from ...core.engines import eager_only, make_engine
from ...core.events import Header, Round
from ...core.loop import decode
from ...core.race import race
from ...core.sampling import Decide
from ...core.threads import use_threads
from ...core.types import Prefilled
from ...lanes import LANE_LABELS, Lane
from ...pairs.pair import Pair
from ...runs.metrics import Metrics, compute_metrics
from ...runs.trace import Trace
from ...runs.uncertainty import Spread, spread
from ...settings import Settings
from .best import ASSISTED, BASELINE, GENERATE, PLAIN, SPECULATIVE, Best, best_of
from .hf_generate import generate_seconds
from .round_time import RoundParts, round_parts

MeasuredRun: TypeAlias = tuple[Trace, Metrics]


@dataclass(frozen=True, slots=True)
class Row:
    """The results for one temperature and number of threads over all prompts and repeats.

    prompts: their number. context: tokens in the cache halfway through a median run.
    tokens_per_second: by variant, including prefill. speedup: between the lanes, without prefill;
    the value of a prompt is the median of its repeats, the spread is over prompts. wall_rates,
    speedup_wall: tokens per second of the lanes, and speed-up, on the wall clock, with engines and
    texts. A speed-up is None if all runs are too short to compare.
    alpha, beta, efficiency, tau: over the rounds of all prompts. c: median over prompts.
    draft_step_seconds, overhead_seconds: medians over rounds. pass_seconds: medians by the number
    of tokens in the target pass, including the verdict. parts: where the time of a round goes;
    None if nothing was drafted. identical: the number of prompts on which both lanes wrote the
    same text; None when sampling.
    """

    temperature: float
    threads: int
    prompts: int
    context: int
    tokens_per_second: dict[str, Spread]
    speedup: Spread | None
    wall_rates: dict[str, Spread]
    speedup_wall: Spread | None
    alpha: float | None
    beta: float | None
    efficiency: float | None
    tau: float | None
    c: float | None
    draft_step_seconds: float | None
    pass_seconds: dict[int, float]
    overhead_seconds: float
    parts: RoundParts | None
    identical: int | None


def measured(
    pair: Pair,
    prompts: Sequence[str],
    settings: Settings,
    repeats: int,
    *,
    with_generate: bool,
    threads: Sequence[int] = (1,),
    decider: Decide | None = None,
) -> tuple[list[Row], Best, Header]:
    """Decode every prompt with every variant and every number of threads, `repeats` times.

    All of them run in turn on each prompt, so that slow changes of the machine's speed affect them
    in the same way; each is warmed up first. with_generate: also measure `generate()`. decider:
    scripts the verdicts of the lanes; those of `generate()` cannot be scripted.
    """
    variants = _generate_variants(pair, settings) if with_generate else {}
    rates: dict[int, dict[str, list[float]]] = {count: defaultdict(list) for count in threads}
    runs: dict[int, list[list[MeasuredRun]]] = {count: [[] for _ in prompts] for count in threads}
    for again in range(repeats + 1):
        for index, prompt in enumerate(prompts[: 1 if again == 0 else None]):
            for count in threads:
                with all_with(count):
                    generate_rates = {name: rate(prompt) for name, rate in variants.items()}
                    trace = Trace.from_events(race(pair, prompt, settings, decider=decider))
                if again == 0:
                    continue
                run = trace, compute_metrics(trace)
                runs[count][index].append(run)
                for name, value in {**_lane_rates(*run), **generate_rates}.items():
                    rates[count][name].append(value)
    rows = []
    for count in threads:
        with all_with(count):
            parts = round_parts(pair, prompts, settings, decider)
        spreads = {name: spread(values) for name, values in rates[count].items()}
        row, header = _row(settings, count, runs[count], spreads, parts)
        rows.append(row)
    return rows, best_of(settings.temperature, rates), header


@contextmanager
def all_with(threads: int) -> Iterator[None]:
    """Within, torch and compiled passes share their work among so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with use_threads(threads):
            yield
    finally:
        torch.set_num_threads(before)


def _generate_variants(pair: Pair, settings: Settings) -> dict[str, Callable[[str], float]]:
    """The variants besides the lanes, by name: functions from a prompt to tokens per second.

    On a processor they run copies of the models in fp32, in which the lanes compute too.
    """
    compiled = make_engine(pair.target, pair.vocab).form != EagerEngine.form
    pair = in_fp32(pair) if pair.device.type == "cpu" else pair

    def generated(prompt: str, assisted: bool) -> float:
        ids = pair.encode(prompt, chat=settings.chat)
        seconds, emitted = generate_seconds(pair, ids, settings, assisted=assisted)
        return len(emitted) / seconds

    variants: dict[str, Callable[[str], float]] = {GENERATE: partial(generated, assisted=False)}
    if pair.draft is not None and settings.gamma:
        variants[ASSISTED] = partial(generated, assisted=True)
        if compiled:
            variants[PLAIN] = partial(_plain_rate, pair, settings)
    return variants


def in_fp32(pair: Pair) -> Pair:
    """The same pair, with copies of those models that have other weights than fp32."""

    def widened(model: Any) -> Any:
        if model is None or model.dtype == torch.float32:
            return model
        return copy.deepcopy(model).float()

    return replace(pair, target=widened(pair.target), draft=widened(pair.draft))


def _plain_rate(pair: Pair, settings: Settings, prompt: str) -> float:
    """Tokens per second of the speculative lane with the eager engine, including prefill."""
    ids = pair.encode(prompt, chat=settings.chat)
    with eager_only():
        first, *rounds = decode(pair, ids, settings, "speculative")
    assert isinstance(first, Prefilled)
    decoded = [r for r in rounds if isinstance(r, Round)]
    seconds = sum(first.seconds.values()) + decoded[-1].clock
    return sum(len(r.emitted) for r in decoded) / seconds


def _lane_rates(trace: Trace, m: Metrics) -> dict[str, float]:
    prefill = trace.header.prefill_seconds
    lanes: dict[str, Lane] = {BASELINE: "baseline", SPECULATIVE: "speculative"}
    return {
        name: m.tokens[lane] / (m.seconds[lane] + sum(prefill[lane].values()))
        for name, lane in lanes.items()
    }


def _row(
    settings: Settings,
    threads: int,
    runs: Sequence[Sequence[MeasuredRun]],
    rates: dict[str, Spread],
    parts: RoundParts | None,
) -> tuple[Row, Header]:
    by_prompt = [[metrics for _, metrics in again] for again in runs]
    firsts = [again[0][0] for again in runs]
    header = firsts[0].header
    rounds = [r for trace in firsts for r in trace.rounds]
    pooled = compute_metrics(Trace(header, rounds))
    drafting = [r for r in rounds if r.drafted]
    ends = [trace.end for trace in firsts]
    row = Row(
        temperature=settings.temperature,
        threads=threads,
        prompts=len(runs),
        context=statistics.median_low(_middle(trace) for trace in firsts),
        tokens_per_second=rates,
        speedup=_spread_of(by_prompt, lambda m: m.speedup),
        wall_rates=_wall_rates([m for again in by_prompt for m in again]),
        speedup_wall=_spread_of(by_prompt, lambda m: m.speedup_wall),
        alpha=pooled.alpha,
        beta=pooled.beta,
        efficiency=pooled.efficiency,
        tau=pooled.tau,
        c=_median(_prompt_medians(by_prompt, lambda m: m.c)),
        draft_step_seconds=_median(r.draft_seconds / len(r.drafted) for r in drafting),
        pass_seconds=_pass_seconds(rounds),
        overhead_seconds=_median(r.overhead_seconds for r in drafting or rounds) or 0.0,
        parts=parts,
        identical=sum(bool(e and e.identical) for e in ends) if settings.greedy else None,
    )
    return row, header


def _wall_rates(runs: Sequence[Metrics]) -> dict[str, Spread]:
    return {
        name: spread(m.tokens[lane] / (m.wall_seconds[lane] or float("inf")) for m in runs)
        for lane, name in LANE_LABELS.items()
    }


def _spread_of(
    by_prompt: Sequence[Sequence[Metrics]], figure: Callable[[Metrics], float | None]
) -> Spread | None:
    medians = _prompt_medians(by_prompt, figure)
    return spread(medians) if medians else None


def _prompt_medians(
    by_prompt: Sequence[Sequence[Metrics]], figure: Callable[[Metrics], float | None]
) -> list[float]:
    """The median over the repeats, for each prompt that has the figure."""
    values = ([v for m in again if (v := figure(m)) is not None] for again in by_prompt)
    return [statistics.median(known) for known in values if known]


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None


def _middle(trace: Trace) -> int:
    return len(trace.header.prompt_ids) + sum(len(r.emitted) for r in trace.lane("baseline")) // 2


def _pass_seconds(rounds: Sequence[Round]) -> dict[int, float]:
    by_width: dict[int, list[float]] = defaultdict(list)
    for r in rounds:
        by_width[len(r.drafted) + 1].append(r.verify_seconds)
    return {width: statistics.median(by_width[width]) for width in sorted(by_width)}
