"""What a benchmark measures: four ways to decode the same prompts, taken in turn."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from .decoding import Decide
from .engine import now
from .metrics import Metrics, compute_metrics
from .pair import Pair
from .race import race
from .rivals import generate_seconds
from .settings import Settings
from .trace import Header, Round, Trace

BASELINE, SPECULATIVE = "target alone", "draft + target"
GENERATE, ASSISTED = "generate()", "generate(assistant)"


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with its quartiles."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one temperature over all prompts and repeats.

    tokens_per_second: by arm, prefill included for every arm. speedup: the lanes' own, prefill
    not included; a prompt's figure is the median of its repeats, the spread is over prompts.
    alpha, beta, efficiency, tau: over the rounds of all prompts. Seconds are medians;
    pass_seconds is by the number of tokens in a target pass. identical: prompts on which both
    lanes wrote the same, None when sampling.
    """

    temperature: float
    prompts: int
    tokens_per_second: dict[str, Spread]
    speedup: Spread
    alpha: float | None
    beta: float | None
    efficiency: float | None
    tau: float | None
    c: float | None
    draft_step_seconds: float | None
    pass_seconds: dict[int, float]
    overhead_seconds: float
    identical: int | None


def measured(
    pair: Pair,
    prompts: Sequence[str],
    settings: Settings,
    repeats: int,
    *,
    rivals: bool,
    decider: Decide | None = None,
) -> tuple[Row, Header]:
    """Decode every prompt in every way, `repeats` times; the ways take turns on each prompt, so
    that the machine's drift hits all alike. Each way is warmed up first. `decider` scripts the
    lanes' verdicts; transformers' own cannot be scripted."""
    ways = {GENERATE: False, ASSISTED: pair.draft is not None} if rivals else {}
    rates: dict[str, list[float]] = defaultdict(list)
    traces: list[list[Trace]] = [[] for _ in prompts]
    for again in range(repeats + 1):
        for index, prompt in enumerate(prompts[: 1 if again == 0 else None]):
            rival_rates = {
                name: _generate_rate(pair, prompt, settings, assisted=assisted)
                for name, assisted in ways.items()
            }
            trace = Trace.from_events(race(pair, prompt, settings, decider=decider))
            if again == 0:
                continue
            traces[index].append(trace)
            for name, rate in {**_lane_rates(trace), **rival_rates}.items():
                rates[name].append(rate)
    return _row(settings, traces, {name: spread(r) for name, r in rates.items()})


def _generate_rate(pair: Pair, prompt: str, settings: Settings, *, assisted: bool) -> float:
    seconds, ids = generate_seconds(pair, pair.encode(prompt), settings, assisted=assisted)
    return len(ids) / seconds


def _lane_rates(trace: Trace) -> dict[str, float]:
    m, prefill = compute_metrics(trace), trace.header.prefill_seconds
    return {
        BASELINE: m.tokens["baseline"]
        / (m.seconds["baseline"] + sum(prefill["baseline"].values())),
        SPECULATIVE: m.tokens["speculative"]
        / (m.seconds["speculative"] + sum(prefill["speculative"].values())),
    }


def _row(
    settings: Settings, traces: Sequence[Sequence[Trace]], rates: dict[str, Spread]
) -> tuple[Row, Header]:
    by_prompt = [[compute_metrics(t) for t in again] for again in traces]
    header = traces[0][0].header
    rounds = [r for again in traces for r in again[0].rounds]
    pooled = compute_metrics(Trace(header, rounds))
    drafting = [r for r in rounds if r.drafted]
    ends = [again[0].end for again in traces]
    row = Row(
        temperature=settings.temperature,
        prompts=len(traces),
        tokens_per_second=rates,
        speedup=spread(_prompt_medians(by_prompt, lambda m: m.speedup)),
        alpha=pooled.alpha,
        beta=pooled.beta,
        efficiency=pooled.efficiency,
        tau=pooled.tau,
        c=_median(_prompt_medians(by_prompt, lambda m: m.c)),
        draft_step_seconds=_median(r.draft_seconds / len(r.drafted) for r in drafting),
        pass_seconds=_pass_seconds(rounds),
        overhead_seconds=_median(r.overhead_seconds for r in drafting or rounds) or 0.0,
        identical=sum(bool(e and e.identical) for e in ends) if settings.greedy else None,
    )
    return row, header


def spread(values: Iterable[float]) -> Spread:
    """Median and quartiles of one value or more."""
    known = list(values)
    if len(known) < 2:
        return Spread(known[0], known[0], known[0])
    low, middle, high = statistics.quantiles(known, n=4, method="inclusive")
    return Spread(middle, low, high)


def _prompt_medians(
    by_prompt: Sequence[Sequence[Metrics]], figure: Callable[[Metrics], float | None]
) -> list[float]:
    """A prompt's median over its repeats, for each prompt that has the figure."""
    values = ([v for m in again if (v := figure(m)) is not None] for again in by_prompt)
    return [statistics.median(known) for known in values if known]


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None


def _pass_seconds(rounds: Sequence[Round]) -> dict[int, float]:
    by_width: dict[int, list[float]] = defaultdict(list)
    for r in rounds:
        by_width[len(r.drafted) + 1].append(r.verify_seconds)
    return {width: statistics.median(by_width[width]) for width in sorted(by_width)}


@torch.inference_mode()
def floor_seconds(pair: Pair) -> tuple[float, float]:
    """The least seconds of a one-token target pass, and bytes per second that it rests on.

    A pass reads every weight once. The bandwidth is that of summing a buffer as large as the
    weights, again and again: what fits in a cache is read from there, as weights are.
    """
    model = pair.target
    table, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    # An embedding table that is not also the head gives up a single row.
    skipped = {table.data_ptr()} - {head.weight.data_ptr()}
    weights = {p.data_ptr(): p for p in model.parameters() if p.data_ptr() not in skipped}
    size = sum(p.numel() * p.element_size() for p in weights.values())
    buffer = torch.ones(max(1, size // 4), device=pair.device)
    seconds = []
    for _ in range(12):
        start = now(pair.device)
        buffer.sum()
        seconds.append(now(pair.device) - start)
    fastest = min(seconds[2:])
    return fastest, size / fastest
