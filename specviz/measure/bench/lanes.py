"""Measurement of the lanes and of transformers' `generate()` on the same prompts, in turn."""

from __future__ import annotations

import copy
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from ...core.eager import EagerEngine
from ...core.engine import eager_only, make_engine, now
from ...core.events import Header, Round
from ...core.loop import decode
from ...core.types import Prefilled
from ...lanes import LANE_LABELS
from ...pairs.pair import Pair
from ...runs.metrics import Metrics, compute_metrics
from ...runs.trace import Trace
from ...runs.uncertainty import Spread, spread
from ...settings import Settings
from ..racing import all_with, by_prompt, in_fp32, whole_race

if TYPE_CHECKING:
    from ...core.protocols import Decide

BASELINE, SPECULATIVE = LANE_LABELS["baseline"], LANE_LABELS["speculative"]
GENERATE, ASSISTED = "generate()", "generate(assistant)"
PLAIN = f"{SPECULATIVE}, plain"  # the speculative lane on the same modules that generate() runs

# transformers' defaults: with other values it warns that greedy decoding ignores them.
NEUTRAL = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}

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
                    trace = whole_race(pair, prompt, settings, decider)
                if again == 0:
                    continue
                run = trace, compute_metrics(trace)
                runs[count][index].append(run)
                for name, value in {**_lane_rates(*run), **generate_rates}.items():
                    rates[count][name].append(value)
    rows = []
    for count in threads:
        spreads = {name: spread(values) for name, values in rates[count].items()}
        row, header = _row(settings, count, runs[count], spreads)
        rows.append(row)
    return rows, best_of(settings.temperature, rates), header


def best_of(temperature: float, rates: dict[int, dict[str, list[float]]]) -> Best:
    """Compare each variant at its best number of threads.

    rates: threads -> variant -> tokens per second of all runs, in one order for all.
    """
    names = next(iter(rates.values()))
    medians = {
        name: {count: statistics.median(some[name]) for count, some in rates.items()}
        for name in names
    }
    threads = {name: max(by_count, key=by_count.__getitem__) for name, by_count in medians.items()}
    best = {name: rates[count][name] for name, count in threads.items()}

    def ratio(one: str, other: str) -> Spread:
        return spread(a / b for a, b in zip(best[one], best[other], strict=True))

    compared = [(SPECULATIVE, BASELINE), (SPECULATIVE, ASSISTED), (BASELINE, GENERATE)]
    ratios = {f"{a} / {b}": ratio(a, b) for a, b in compared if {a, b} <= best.keys()}
    spreads = {name: spread(values) for name, values in best.items()}
    return Best(temperature, threads, spreads, ratios)


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


def generate_seconds(
    pair: Pair, prompt_ids: Sequence[int], settings: Settings, *, assisted: bool
) -> tuple[float, list[int]]:
    """Seconds of one `generate()` call, including the prompt, and the ids that it emitted.

    It emits `max_new_tokens` tokens, even after an end of text. assisted: use the draft as the
    assistant, with a constant `settings.gamma` tokens per round, whatever the draft's confidence.
    """
    target: Any = pair.target
    ids = torch.tensor([list(prompt_ids)], device=target.device)
    options: dict[str, Any] = {"attention_mask": torch.ones_like(ids)}
    config = _generation_config(target, settings)
    torch.manual_seed(settings.seed)
    with _constant_drafts(pair.draft if assisted else None, settings.gamma) as assistant:
        if assistant is not None:
            options["assistant_model"] = assistant
        start = now(pair.device)
        with torch.inference_mode():
            output = target.generate(ids, generation_config=config, **options)
        seconds = now(pair.device) - start
    return seconds, output[0, ids.shape[1] :].tolist()


def _generation_config(model: Any, settings: Settings) -> Any:
    config = copy.deepcopy(model.generation_config)
    length = {"max_new_tokens": settings.max_new_tokens, "eos_token_id": None, "pad_token_id": 0}
    sampled = {name: getattr(settings, name) for name in NEUTRAL}
    how = NEUTRAL if settings.greedy else sampled
    config.update(do_sample=not settings.greedy, **length, **how)
    return config


@contextmanager
def _constant_drafts(draft: Any, gamma: int) -> Iterator[Any]:
    """`draft`, if any, set to draft `gamma` tokens per round; its own config is restored after."""
    if draft is None:
        yield None
        return
    own = draft.generation_config
    draft.generation_config = copy.deepcopy(own)
    draft.generation_config.update(
        num_assistant_tokens=gamma,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
        eos_token_id=None,
    )
    try:
        yield draft
    finally:
        draft.generation_config = own


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
    return {
        name: m.tokens[lane] / (m.seconds[lane] + sum(prefill[lane].values()))
        for lane, name in LANE_LABELS.items()
    }


def _row(
    settings: Settings,
    threads: int,
    runs: Sequence[Sequence[MeasuredRun]],
    rates: dict[str, Spread],
) -> tuple[Row, Header]:
    metrics = [[m for _, m in again] for again in runs]
    firsts = [again[0][0] for again in runs]
    rounds = [r for trace in firsts for r in trace.rounds]
    pooled = compute_metrics(Trace(firsts[0].header, rounds))
    drafting = [r for r in rounds if r.drafted]
    by_width: dict[int, list[float]] = defaultdict(list)
    for r in rounds:
        by_width[len(r.drafted) + 1].append(r.verify_seconds)
    speedups, walls = (
        by_prompt(metrics, figure) for figure in (lambda m: m.speedup, lambda m: m.speedup_wall)
    )
    row = Row(
        temperature=settings.temperature,
        threads=threads,
        prompts=len(runs),
        context=statistics.median_low(_middle(trace) for trace in firsts),
        tokens_per_second=rates,
        speedup=spread(speedups) if speedups else None,
        wall_rates={
            name: spread(
                m.tokens[lane] / (m.wall_seconds[lane] or math.inf)
                for again in metrics
                for m in again
            )
            for lane, name in LANE_LABELS.items()
        },
        speedup_wall=spread(walls) if walls else None,
        alpha=pooled.alpha,
        beta=pooled.beta,
        efficiency=pooled.efficiency,
        tau=pooled.tau,
        c=_median(by_prompt(metrics, lambda m: m.c)),
        draft_step_seconds=_median([r.draft_seconds / len(r.drafted) for r in drafting]),
        pass_seconds={width: statistics.median(by_width[width]) for width in sorted(by_width)},
        overhead_seconds=_median([r.overhead_seconds for r in drafting or rounds]) or 0.0,
        identical=sum(bool(one.end and one.end.identical) for one in firsts)
        if settings.greedy
        else None,
    )
    return row, firsts[0].header


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _middle(trace: Trace) -> int:
    return len(trace.header.prompt_ids) + sum(len(r.emitted) for r in trace.lane("baseline")) // 2
