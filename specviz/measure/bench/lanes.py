"""The lanes against each other and against transformers' `generate()` on the same prompts,
measured in turns, as tables and as JSON."""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ...core.events import Header, Round
from ...core.lanes import LANE_LABELS, Lane
from ...core.messages import TextPrompt
from ...core.pair import Pair
from ...core.settings import Settings
from ...core.threads import thread_counts
from ...inspect.random_models import scripted
from ...runs.metrics import Metrics, compute_metrics
from ...runs.tables import rate_line, shown_milliseconds, shown_number
from ...runs.trace import Trace
from ...runs.uncertainty import Spread, spread
from ...sides.fast_gpu.engine import startup_seconds, wait_for_kernels
from ..races import RaceFigures, busy_runs, by_prompt, race_figures, race_writer
from ..samples import Comparison, Sample, Variant, by_turns
from .generate import ASSISTED, GENERATE, LOOKUP, other_writers
from .kernels import kernels_by_role
from .roofline import Floor, floors

if TYPE_CHECKING:
    from ...core.protocols import Rule

T = TypeVar("T")

BASELINE = LANE_LABELS["baseline"]
SPECULATIVE = LANE_LABELS["speculative"]
COMPARED = (
    (SPECULATIVE, BASELINE),
    (SPECULATIVE, ASSISTED),
    (SPECULATIVE, LOOKUP),
    (BASELINE, GENERATE),
)
"""The variants whose ratio is shown."""

STEPS = {"target": "a one-token target pass", "draft": "a draft step"}
"""The name of a model's pass, by its role."""


@dataclass(frozen=True, slots=True)
class BenchRow:
    """The results for one temperature and number of threads over all prompts and repeats.

    prompts: their number.
    context: tokens in the cache halfway through a median run.
    tokens_per_second: by variant, including prefill.
    speedup: between the lanes, without prefill; the value of a prompt is the median of its repeats,
        the spread is over prompts. None if all runs are too short to compare.
    wall_rates, speedup_wall: tokens per second of the lanes, and speed-up, on the wall clock, with
        engines and texts.
    alpha, beta, efficiency, tau: over the rounds of all prompts.
    c: median over prompts.
    draft_step_seconds, overhead_seconds: medians over rounds.
    pass_seconds: medians by the number of tokens in the target pass, including the verdict.
    host_seconds: of each lane, by label, the median time between two rounds in which the host works
        on texts and cards.
    identical: the number of prompts on which both lanes wrote the same text; None when sampling.
    busy_runs: the races that were delayed by something else on the machine.
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
    host_seconds: dict[str, float]
    identical: int | None
    busy_runs: int


@dataclass(frozen=True, slots=True)
class Best:
    """Every variant with its best number of threads, at one temperature.

    threads, tokens_per_second: by variant. ratios: "one / other" -> how many times as fast, turn by
    turn.
    """

    temperature: float
    threads: dict[str, int]
    tokens_per_second: dict[str, Spread]
    ratios: dict[str, Spread]


def measured(
    pair: Pair,
    prompts: Sequence[TextPrompt],
    settings: Settings,
    repeats: int,
    *,
    with_generate: bool,
    threads: Sequence[int] = (1,),
    scripted_rule: Rule | None = None,
) -> tuple[list[BenchRow], Best, Header]:
    """Decode every prompt with every variant and every number of threads, `repeats` times.

    with_generate: also measure `generate()`. scripted_rule: judges the lanes' drafts; those of
    `generate()` cannot be scripted.
    """
    writers = [race_writer(pair, settings, with_prefill=True, scripted_rule=scripted_rule)]
    if with_generate:
        writers += other_writers(pair, settings)
    writers_by_threads = [replace(writer, threads=count) for count in threads for writer in writers]

    def wait_for_models() -> None:
        for model in _models(pair):
            wait_for_kernels(model)

    samples = list(by_turns(writers_by_threads, prompts, repeats, after_warmup=wait_for_models))
    rows = []
    for count in threads:
        samples_here = [sample for sample in samples if sample.writer.threads == count]
        rows.append(_row(settings, samples_here))
    best = best_of(settings.temperature, Comparison.of(samples))
    return rows, best, samples[0].race.header


def best_of(temperature: float, comparison: Comparison) -> Best:
    """Compare each variant at its best number of threads."""
    by_label: dict[str, list[Variant]] = defaultdict(list)
    for variant in comparison.rates:
        by_label[variant.label].append(variant)
    best = {label: comparison.best(variants) for label, variants in by_label.items()}
    ratios = {}
    for label, reference in COMPARED:
        if label in best and reference in best:
            ratio = comparison.ratio(best[label], best[reference])
            ratios[f"{label} / {reference}"] = ratio
    return Best(
        temperature=temperature,
        threads={label: variant.threads for label, variant in best.items()},
        tokens_per_second={label: comparison.spread(variant) for label, variant in best.items()},
        ratios=ratios,
    )


def _row(settings: Settings, samples: Sequence[Sample]) -> BenchRow:
    """samples: of one number of threads."""
    comparison = Comparison.of(samples)
    races = [sample for sample in samples if sample.written.trace is not None]
    runs = [race_figures(sample.writer.name, sample.prompt, sample.race) for sample in races]
    # The tokens of a repeat are the same again, or another sample: rounds are those of the first.
    first_traces = [sample.race for sample in races if sample.repeat == 0]
    rounds = [r for trace in first_traces for r in trace.rounds]
    pooled = compute_metrics(Trace(first_traces[0].header, rounds))
    drafting = [r for r in rounds if r.drafted]
    tokens_per_second = {variant.label: comparison.spread(variant) for variant in comparison.rates}
    return BenchRow(
        temperature=settings.temperature,
        threads=samples[0].writer.threads,
        prompts=len(first_traces),
        context=statistics.median_low([_halfway(trace) for trace in first_traces]),
        tokens_per_second=tokens_per_second,
        speedup=_over_prompts(runs, spread, lambda m: m.speedup),
        wall_rates=_wall_rates(runs),
        speedup_wall=_over_prompts(runs, spread, lambda m: m.speedup_wall),
        alpha=pooled.alpha,
        beta=pooled.beta,
        efficiency=pooled.efficiency,
        tau=pooled.tau,
        c=_over_prompts(runs, statistics.median, lambda m: m.c),
        draft_step_seconds=_draft_step_seconds(drafting),
        pass_seconds=_pass_seconds(rounds),
        overhead_seconds=statistics.median(r.overhead_seconds for r in drafting or rounds),
        host_seconds=_host_seconds(first_traces),
        identical=_identical(first_traces) if settings.greedy else None,
        busy_runs=len(busy_runs(runs)),
    )


def _draft_step_seconds(drafting: Sequence[Round]) -> float | None:
    """The median seconds of a draft step in rounds that drafted; None if there are none."""
    if not drafting:
        return None
    return statistics.median(r.draft_seconds / len(r.drafted) for r in drafting)


def _pass_seconds(rounds: Iterable[Round]) -> dict[int, float]:
    """The median seconds of a target pass, by the number of its tokens."""
    by_width: dict[int, list[float]] = defaultdict(list)
    for r in rounds:
        by_width[len(r.drafted) + 1].append(r.verify_seconds)
    return {width: statistics.median(seconds) for width, seconds in sorted(by_width.items())}


def _wall_rates(runs: Sequence[RaceFigures]) -> dict[str, Spread]:
    """The rates of the lanes on the wall clock, by label."""
    rates = {}
    for lane, label in LANE_LABELS.items():
        rates[label] = spread(_wall_rate(run.metrics, lane) for run in runs)
    return rates


def _wall_rate(metrics: Metrics, lane: Lane) -> float:
    """Tokens per second on the wall clock; 0 if the trace does not tell."""
    return metrics.tokens[lane] / (metrics.wall_seconds[lane] or math.inf)


def _identical(traces: Iterable[Trace]) -> int:
    """Count the races in which both lanes wrote the same text."""
    return sum(trace.end is not None and bool(trace.end.identical) for trace in traces)


def _host_seconds(traces: Sequence[Trace]) -> dict[str, float]:
    """The median seconds of the host between two rounds of a lane, by label."""
    medians = {}
    for lane, label in LANE_LABELS.items():
        seconds = _between_rounds(traces, lane)
        if seconds:
            medians[label] = statistics.median(seconds)
    return medians


def _between_rounds(traces: Iterable[Trace], lane: Lane) -> list[float]:
    """Seconds between the rounds of a lane, which only its wall clock counts."""
    seconds = []
    for trace in traces:
        timed = [r.wall - r.clock for r in trace.lane(lane) if r.wall is not None]
        seconds += [after - before for before, after in pairwise(timed)]
    return seconds


def _over_prompts(
    runs: Sequence[RaceFigures],
    summary: Callable[[Iterable[float]], T],
    figure: Callable[[Metrics], float | None],
) -> T | None:
    """Summarize a figure over prompts, each with the median of its repeats; None if it is None on
    all."""
    values = by_prompt(runs, lambda run: figure(run.metrics))
    if not values:
        return None
    return summary(values.values())


def _halfway(trace: Trace) -> int:
    """Tokens in the cache halfway through a run of the target alone."""
    emitted = sum(len(r.emitted) for r in trace.lane("baseline"))
    return len(trace.header.prompt_ids) + emitted // 2


def lanes_report(
    pair: Pair, prompts: Sequence[TextPrompt], settings: Settings, options: argparse.Namespace
) -> dict[str, Any]:
    """Measure at every temperature, print tables, floors and the environment, and return them."""
    acceptance = options.acceptance
    scripted_rule: Rule | None = None
    print(
        f"{len(prompts)} prompts, {options.repeats} repeats, gamma {settings.gamma}, "
        f"{settings.max_new_tokens} tokens each\n"
    )
    if acceptance is not None:
        scripted_rule = scripted(acceptance)
        print(
            f"verdicts are scripted: every draft is kept with probability {acceptance}, so text, "
            "alpha and tau do not describe these models\n"
        )
    threads = options.threads or thread_counts()
    if pair.device.type != "cpu":
        threads = threads[:1]
    rows: list[BenchRow] = []
    best: list[Best] = []
    for temperature in options.temperatures:
        rows_here, best_here, header = measured(
            pair,
            prompts,
            replace(settings, temperature=temperature),
            options.repeats,
            with_generate=not options.lanes_only,
            threads=threads,
            scripted_rule=scripted_rule,
        )
        print(*_lines(rows_here, best_here), "", sep="\n", flush=True)
        rows += rows_here
        best.append(best_here)
    environment = _environment(pair, header)
    floors_of_pair = floors(pair, rows[0].context, settings.drafter)
    kernels = kernels_by_role(pair, settings)
    for role, floor in floors_of_pair.items():
        print(_floor_line(role, floor, rows))
    for role, count in kernels.items():
        print(f"kernels of {STEPS[role]}: {count}")
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    return {
        "settings": settings,
        "environment": environment,
        "scripted_acceptance": acceptance,
        "floors": floors_of_pair,
        "kernels": kernels,
        "rows": rows,
        "best": best,
    }


def _floor_line(role: str, floor: Floor, rows: Iterable[BenchRow]) -> str:
    if role == "target":
        measured_seconds = [row.pass_seconds.get(1) for row in rows]
    else:
        measured_seconds = [row.draft_step_seconds for row in rows]
    seconds = min(filter(None, measured_seconds), default=None)
    share = ""
    if seconds:
        share = f", {floor.seconds / seconds:.0%} of the speed that reading allows"
    return (
        f"floor of {STEPS[role]}: {shown_milliseconds(floor.seconds)}, to read "
        f"{floor.bytes / 1e6:.1f} MB of weights and of {floor.cached} cached tokens at "
        f"{floor.bytes_per_second / 1e9:.1f} GB/s "
        f"(the measured speed of reading a buffer of that size repeatedly); "
        f"measured {shown_milliseconds(seconds)}{share}"
    )


def _lines(rows: Sequence[BenchRow], best: Best) -> Iterator[str]:
    for row in rows:
        yield f"temperature {row.temperature}, threads: {row.threads}"
        for name, rate in row.tokens_per_second.items():
            yield rate_line(name, rate, 24)
        for name, figure in _figures(row):
            yield f"  {name:24} {figure}"
        yield ""
    yield f"temperature {best.temperature}, each variant with its best number of threads"
    for name, rate in best.tokens_per_second.items():
        yield rate_line(name, rate, 24, f"(threads: {best.threads[name]})")
    for names, ratio in best.ratios.items():
        yield f"  {names}: {ratio.shown()}"


def _figures(row: BenchRow) -> Iterator[tuple[str, str]]:
    """The names and the texts of a row's figures."""
    rates = [f"{name} {rate.median:.1f}" for name, rate in row.wall_rates.items()]
    passes = [
        f"{width}: {shown_milliseconds(seconds)}" for width, seconds in row.pass_seconds.items()
    ]
    between = [
        f"{name} {shown_milliseconds(seconds)}" for name, seconds in row.host_seconds.items()
    ]
    yield "speed-up", _shown_speedup(row.speedup)
    yield "speed-up, wall", _shown_speedup(row.speedup_wall)
    yield "tokens/s, wall", ", ".join(rates)
    yield "alpha", shown_number(row.alpha, 3)
    yield "beta", shown_number(row.beta, 3)
    yield "efficiency", shown_number(row.efficiency, 3)
    yield "tau", shown_number(row.tau, 2)
    yield "c", shown_number(row.c, 3)
    yield "draft step", shown_milliseconds(row.draft_step_seconds)
    yield "other work", f"{shown_milliseconds(row.overhead_seconds)} per round"
    yield "target pass", ", ".join(passes)
    yield "host between rounds", ", ".join(between)
    if row.identical is not None:
        yield "same text", f"{row.identical}/{row.prompts} prompts"
    if row.busy_runs:
        yield "busy machine", f"{row.busy_runs} of the races were delayed"


def _shown_speedup(speedup: Spread | None) -> str:
    if speedup is None:
        return "too short to compare"
    return speedup.shown()


def _environment(pair: Pair, header: Header) -> dict[str, Any]:
    environment: dict[str, Any] = {
        "device": header.device,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "processor": header.processor,
        "dtype": header.dtype,
        "arithmetic": header.arithmetic,
        "target": _model_and_form(header.target),
        "draft": _model_and_form(header.draft),
    }
    environment |= header.versions
    # Only of a GPU, and of an engine that captured something.
    peak_mb = round(torch.cuda.max_memory_allocated() / 2**20)
    if peak_mb:
        environment["peak_gpu_mb"] = peak_mb
    startup = round(sum(map(startup_seconds, _models(pair))), 2)
    if startup:
        environment["startup_seconds"] = startup
    return environment


def _models(pair: Pair) -> list[Any]:
    return [model for model in (pair.target, pair.draft) if model is not None]


def _model_and_form(model: dict[str, Any] | None) -> str | None:
    """A model of a header, with the form of its engine."""
    if not model:
        return None
    return f"{model['name']} ({model['form']})"
