"""Measured comparisons on this machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .engine import spare_threads
from .errors import SpecvizError
from .metrics import Metrics, compute_metrics
from .options import add_settings, settings_from
from .pair import Pair
from .pairs import ASSETS, load_pair
from .race import race
from .settings import Settings
from .trace import Header, Trace


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one temperature over all prompts.

    Speeds (tokens/s) and `speedup` are medians over prompts of the median over repeats, with
    quartiles over prompts; alpha, beta, efficiency and tau pool the rounds of all prompts; c is
    a median. identical: at temperature 0, prompts on which both lanes wrote the same.
    """

    temperature: float
    prompts: int
    baseline: float
    speculative: float
    speedup: float
    quartiles: tuple[float, float]
    alpha: float
    beta: float
    efficiency: float
    tau: float
    c: float
    identical: int | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `python -m specviz bench`."""
    parser.add_argument("--pair", default="builtin", help="'builtin' or 'target-id+draft-id'")
    parser.add_argument("--prompts", type=Path, help="a JSON list of texts; default: held-out ones")
    parser.add_argument("--count", type=int, default=5, help="prompts used, default %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="default %(default)s")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    add_settings(parser)


def main(options: argparse.Namespace) -> None:
    """Measure, print a table and where it was measured. Raises `SpecvizError`."""
    settings = replace(settings_from(options), ignore_eos=True)
    prompts = _prompts(options.prompts, options.count)
    spare_threads()
    pair = load_pair(options.pair)
    rows, header = [], None
    print(
        f"{len(prompts)} prompts, {options.repeats} repeats, gamma {settings.gamma}, "
        f"{settings.max_new_tokens} tokens each; tokens/s without prefill"
    )
    print(
        "   T    alone  drafted  speed-up (quartiles)  alpha   beta  effic.   tau      c  same text"
    )
    for temperature in options.temperatures:
        at = replace(settings, temperature=temperature)
        row, header = measured(pair, prompts, at, options.repeats)
        rows.append(row)
        print(_line(row), flush=True)
    assert header is not None
    environment = {
        "device": header.device,
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": header.threads,
        "dtype": header.dtype,
        **header.versions,
    }
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    if options.json:
        result = {
            "settings": asdict(settings),
            "environment": environment,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(result, indent=1))


def measured(
    pair: Pair, prompts: Sequence[str], settings: Settings, repeats: int
) -> tuple[Row, Header]:
    """Race on every prompt, `repeats` times in turn, so that drift hits all alike."""
    traces = [
        [Trace.from_events(race(pair, prompt, settings)) for prompt in prompts]
        for _ in range(repeats)
    ]
    by_prompt = [[compute_metrics(t) for t in again] for again in zip(*traces, strict=True)]
    pooled = compute_metrics(_pooled(traces[0]))
    speedups = list(_medians(by_prompt, lambda m: m.speedup))
    ends = [t.end.identical for t in traces[0] if t.end]
    row = Row(
        temperature=settings.temperature,
        prompts=len(prompts),
        baseline=statistics.median(_medians(by_prompt, lambda m: m.tokens_per_second["baseline"])),
        speculative=statistics.median(
            _medians(by_prompt, lambda m: m.tokens_per_second["speculative"])
        ),
        speedup=statistics.median(speedups),
        quartiles=_quartiles(speedups),
        alpha=pooled.alpha or 0.0,
        beta=pooled.beta or 0.0,
        efficiency=pooled.efficiency or 0.0,
        tau=pooled.tau or 0.0,
        c=statistics.median(_medians(by_prompt, lambda m: m.c)),
        identical=sum(map(bool, ends)) if settings.greedy else None,
    )
    return row, traces[0][0].header


def _medians(
    by_prompt: Sequence[Sequence[Metrics]], figure: Callable[[Metrics], float | None]
) -> Iterator[float]:
    """A prompt's median over its repeats, for each prompt that has the figure."""
    for again in by_prompt:
        values = [value for m in again if (value := figure(m)) is not None]
        if values:
            yield statistics.median(values)


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _pooled(traces: Sequence[Trace]) -> Trace:
    """One trace with the rounds of all, for figures that count tokens and not seconds."""
    return Trace(traces[0].header, [r for trace in traces for r in trace.rounds])


def _line(row: Row) -> str:
    low, high = row.quartiles
    same = "" if row.identical is None else f"{row.identical}/{row.prompts}"
    return (
        f"{row.temperature:4.1f} {row.baseline:8.1f} {row.speculative:8.1f}"
        f" {row.speedup:9.2f} ({low:.2f} - {high:.2f}) {row.alpha:6.3f} {row.beta:6.3f}"
        f" {row.efficiency:7.3f} {row.tau:5.2f} {row.c:6.3f}  {same}"
    )


def _prompts(path: Path | None, count: int) -> list[str]:
    """The first `count` prompts of a JSON list; by default those held out from training."""
    path = path or ASSETS / "pair" / "prompts.json"
    try:
        texts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecvizError(f"{path.name} cannot be read as a JSON list of prompts.") from error
    if count < 1 or not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
        raise SpecvizError(f"{path.name} must be a JSON list of texts, and --count at least 1.")
    return texts[:count]
