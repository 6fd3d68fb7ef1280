"""The lanes against each other and against transformers' `generate()` on the same prompts, in turn:
measured, as tables and as JSON."""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import truediv
from typing import TYPE_CHECKING, Any

import torch

from ...core.events import Header
from ...core.pair import Pair
from ...core.race import race
from ...core.threads import thread_counts
from ...lanes import LANE_LABELS
from ...runs.metrics import compute_metrics
from ...runs.tables import rate_line, shown_milliseconds, shown_number
from ...runs.trace import Trace
from ...runs.uncertainty import Spread, spread
from ...settings import Settings
from ...sides.fast_gpu.engine import startup_seconds
from .generate import ASSISTED, GENERATE, LOOKUP, other_ways
from .random_models import scripted
from .roofline import Floor, floors
from .turns import all_with, over_prompts

if TYPE_CHECKING:
    from ...core.protocols import Decide

BASELINE, SPECULATIVE = LANE_LABELS["baseline"], LANE_LABELS["speculative"]
COMPARED = (
    *((SPECULATIVE, BASELINE), (SPECULATIVE, ASSISTED), (SPECULATIVE, LOOKUP)),
    (BASELINE, GENERATE),
)
POOLED = ("alpha", "beta", "efficiency", "tau")  # figures of the rounds of all prompts together


@dataclass(frozen=True, slots=True)
class BenchRow:
    """The results for one temperature and number of threads over all prompts and repeats.

    prompts: their number. context: tokens in the cache halfway through a median run.
    tokens_per_second: by variant, including prefill. speedup: between the lanes, without prefill;
    the value of a prompt is the median of its repeats, the spread is over prompts. wall_rates,
    speedup_wall: tokens per second of the lanes, and speed-up, on the wall clock, with engines and
    texts. A speed-up is None if all runs are too short to compare.
    alpha, beta, efficiency, tau: over the rounds of all prompts. c: median over prompts.
    draft_step_seconds, overhead_seconds: medians over rounds. pass_seconds: medians by the number
    of tokens in the target pass, including the verdict. identical: the number of prompts on which
    both lanes wrote the same text; None when sampling.
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
    identical: int | None


@dataclass(frozen=True, slots=True)
class Best:
    """Every variant with the number of threads that suits it best, at one temperature.

    threads, tokens_per_second: by variant. ratios: "one / other" -> how many times as fast, prompt
    by prompt and repeat by repeat.
    """

    temperature: float
    threads: dict[str, int]
    tokens_per_second: dict[str, Spread]
    ratios: dict[str, Spread]


def measured(
    pair: Pair,
    prompts: Sequence[str],
    settings: Settings,
    repeats: int,
    *,
    with_generate: bool,
    threads: Sequence[int] = (1,),
    decider: Decide | None = None,
) -> tuple[list[BenchRow], Best, Header]:
    """Decode every prompt with every variant and every number of threads, `repeats` times.

    All of them run in turn on each prompt, so that slow changes of the machine's speed affect them
    in the same way; each is warmed up first. with_generate: also measure `generate()`. decider:
    scripts the verdicts of the lanes; those of `generate()` cannot be scripted.
    """
    ways = other_ways(pair, settings) if with_generate else {}
    rates: dict[int, dict[str, list[float]]] = {count: defaultdict(list) for count in threads}
    runs: dict[int, list[list[Trace]]] = {count: [[] for _ in prompts] for count in threads}
    for turn, index in enumerate([0, *repeats * [*range(len(prompts))]]):
        for count in threads:
            with all_with(count):
                others = {name: rate(prompts[index]) for name, rate in ways.items()}
                trace = Trace.from_events(race(pair, prompts[index], settings, decider=decider))
            if turn == 0:  # it warmed up
                continue
            runs[count][index].append(trace)
            m = compute_metrics(trace)
            for lane, name in LANE_LABELS.items():
                prefill = sum(trace.header.prefill_seconds[lane].values())
                rates[count][name].append(m.tokens[lane] / (m.seconds[lane] + prefill))
            for name, value in others.items():
                rates[count][name].append(value)
    rows = [_row(settings, count, runs[count], rates[count]) for count in threads]
    return rows, best_of(settings.temperature, rates), runs[threads[0]][0][0].header


def best_of(temperature: float, rates: dict[int, dict[str, list[float]]]) -> Best:
    """Compare each variant at its best number of threads.

    rates: threads -> variant -> tokens per second of all runs, in one order for all.
    """
    threads = {
        name: max(rates, key=lambda count: statistics.median(rates[count][name]))
        for name in next(iter(rates.values()))
    }
    best = {name: rates[count][name] for name, count in threads.items()}
    ratios = {
        f"{a} / {b}": spread(map(truediv, best[a], best[b]))
        for a, b in COMPARED
        if {a, b} <= best.keys()
    }
    return Best(temperature, threads, {name: spread(best[name]) for name in best}, ratios)


def _row(
    settings: Settings, threads: int, runs: Sequence[Sequence[Trace]], rates: dict[str, list[float]]
) -> BenchRow:
    """runs: of each prompt."""
    metrics = [[compute_metrics(trace) for trace in again] for again in runs]
    every, firsts = list(chain(*metrics)), [again[0] for again in runs]
    rounds = [r for trace in firsts for r in trace.rounds]
    pooled = compute_metrics(Trace(firsts[0].header, rounds))
    drafting = [r for r in rounds if r.drafted]
    steps = [r.draft_seconds / len(r.drafted) for r in drafting]
    by_width: dict[int, list[float]] = defaultdict(list)
    for r in rounds:
        by_width[len(r.drafted) + 1].append(r.verify_seconds)
    contexts = [
        len(one.header.prompt_ids) + sum(len(r.emitted) for r in one.lane("baseline")) // 2
        for one in firsts
    ]
    same = [one.end is not None and one.end.identical is True for one in firsts]
    return BenchRow(
        temperature=settings.temperature,
        threads=threads,
        prompts=len(runs),
        context=statistics.median_low(contexts),
        tokens_per_second={name: spread(values) for name, values in rates.items()},
        speedup=over_prompts(metrics, lambda m: m.speedup, spread),
        wall_rates={
            name: spread(m.tokens[lane] / (m.wall_seconds[lane] or math.inf) for m in every)
            for lane, name in LANE_LABELS.items()
        },
        speedup_wall=over_prompts(metrics, lambda m: m.speedup_wall, spread),
        **{name: getattr(pooled, name) for name in POOLED},
        c=over_prompts(metrics, lambda m: m.c, statistics.median),
        draft_step_seconds=statistics.median(steps) if steps else None,
        pass_seconds={width: statistics.median(by_width[width]) for width in sorted(by_width)},
        overhead_seconds=statistics.median(r.overhead_seconds for r in drafting or rounds),
        identical=sum(same) if settings.greedy else None,
    )


def lanes_report(
    pair: Pair, prompts: Sequence[str], settings: Settings, options: argparse.Namespace
) -> dict[str, Any]:
    """Measure at every temperature, print tables, floors and the environment, and return them."""
    given = options.acceptance
    decider = scripted(given) if given is not None else None
    print(
        f"{len(prompts)} prompts, {options.repeats} repeats, gamma {settings.gamma}, "
        f"{settings.max_new_tokens} tokens each\n"
    )
    if decider:
        print(
            f"verdicts are scripted: every draft is kept with probability {given}, "
            "so text, alpha and tau say nothing about these models\n"
        )
    threads = options.threads or thread_counts()
    rows: list[BenchRow] = []
    best: list[Best] = []
    for temperature in options.temperatures:
        some, one, header = measured(
            pair,
            prompts,
            replace(settings, temperature=temperature),
            options.repeats,
            with_generate=not options.lanes_only,
            threads=threads if pair.device.type == "cpu" else threads[:1],
            decider=decider,
        )
        print(*_lines(some, one), "", sep="\n", flush=True)
        rows += some
        best.append(one)
    environment = _environment(pair, header)
    least = floors(pair, rows[0].context, settings.drafter)
    print(*(_floor_line(role, floor, rows) for role, floor in least.items()), sep="\n")
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    how = {"settings": settings, "environment": environment, "scripted_acceptance": given}
    return how | {"floors": least, "rows": rows, "best": best}


def _floor_line(role: str, floor: Floor, rows: Iterable[BenchRow]) -> str:
    target = role == "target"
    what = "a one-token target pass" if target else "a draft step"
    taken = [row.pass_seconds.get(1) if target else row.draft_step_seconds for row in rows]
    seconds = min(filter(None, taken), default=None)
    gap = f", {seconds / floor.seconds:.1f} times the floor" if seconds else ""
    return (
        f"floor of {what}: {shown_milliseconds(floor.seconds)}, to read "
        f"{floor.bytes / 1e6:.1f} MB of weights and of {floor.cached} cached tokens at "
        f"{floor.bytes_per_second / 1e9:.1f} GB/s "
        f"(the measured speed of reading a buffer of that size repeatedly); "
        f"measured {shown_milliseconds(seconds)}{gap}"
    )


def _lines(rows: Sequence[BenchRow], best: Best) -> Iterator[str]:
    for row in rows:
        yield f"temperature {row.temperature}, threads: {row.threads}"
        yield from (rate_line(name, rate, 24) for name, rate in row.tokens_per_second.items())
        yield from (f"  {name:24} {value}" for name, value in _figures(row))
        yield ""
    yield f"temperature {best.temperature}, each way with the threads that suit it best"
    for name, rate in best.tokens_per_second.items():
        yield rate_line(name, rate, 24, f"(threads: {best.threads[name]})")
    yield from (f"  {names}: {ratio.shown()}" for names, ratio in best.ratios.items())


def _figures(row: BenchRow) -> Iterator[tuple[str, str]]:
    for name, ratio in (("speed-up", row.speedup), ("speed-up, wall", row.speedup_wall)):
        yield name, ratio.shown() if ratio else "too short to compare"
    yield "tokens/s, wall", ", ".join(f"{n} {r.median:.1f}" for n, r in row.wall_rates.items())
    for name, places in (("alpha", 3), ("beta", 3), ("efficiency", 3), ("tau", 2), ("c", 3)):
        yield name, shown_number(getattr(row, name), places)
    yield "draft step", shown_milliseconds(row.draft_step_seconds)
    yield "other work", f"{shown_milliseconds(row.overhead_seconds)} per round"
    widths = row.pass_seconds.items()
    yield "target pass", ", ".join(f"{width}: {shown_milliseconds(one)}" for width, one in widths)
    if row.identical is not None:
        yield "same text", f"{row.identical}/{row.prompts} prompts"


def _environment(pair: Pair, header: Header) -> dict[str, Any]:
    target, draft = (
        f"{one['name']} ({one['form']})" if one else None for one in (header.target, header.draft)
    )
    # Of capturing, if an engine did that.
    startup = sum(startup_seconds(one) for one in (pair.target, pair.draft) if one is not None)
    peak = torch.cuda.max_memory_allocated() / 2**20
    of_a_gpu = {"peak_gpu_mb": round(peak), "startup_seconds": round(startup, 2)}
    return {
        "device": header.device,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "processor": header.processor,
        "dtype": header.dtype,
        "target": target,
        "draft": draft,
        **header.versions,
        **{name: value for name, value in of_a_gpu.items() if value},
    }
