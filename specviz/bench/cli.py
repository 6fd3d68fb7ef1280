"""`python -m specviz bench`: measured speeds as a table and as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from ..engines.static.engine import startup_seconds
from ..engines.threads import thread_counts
from ..environment import ASSETS, has_numba
from ..errors import SpecvizError
from ..models.load import load_pair
from ..models.pair import Pair
from ..report.terminal import shown_number
from ..report.uncertainty import Spread
from ..settings import Settings, add_settings, settings_from
from ..trace import LANE_LABELS, Header
from .best import Best
from .drafters import compare_drafters, preset_prompts, score_lines
from .measure import Row, measured
from .page import page_cost
from .random_models import SHAPES, scripted, shaped_pair
from .rival_table import rival_report
from .roofline import Floor, floors
from .round_time import RoundParts, context_costs

KERNEL_ROWS = (1, 2, 3, 4, 5, 6, 7, 8)
CONTEXTS = (100, 1000)  # tokens of context that --context compares


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench` to a parser."""
    add = parser.add_argument
    add("--pair", default="builtin", help="'builtin' or 'target-id+draft-id'")
    add("--models", nargs=2, metavar=("TARGET", "DRAFT"), help="hub ids or folders")
    add("--shape", choices=SHAPES, help="models of well-known sizes with random weights")
    add("--acceptance", type=float, help="keep each draft with this probability (scripted)")
    add("--prompts", type=Path, help="a JSON list of texts; default: held-out ones")
    add("--count", type=int, default=5, help="number of prompts, default %(default)s")
    add("--repeats", type=int, default=3, help="default %(default)s")
    add("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    add("--threads", type=int, nargs="+", help="default: powers of two up to the processors")
    add("--lanes-only", action="store_true", help="do not measure transformers' generate()")
    add("--page", action="store_true", help="only the page's cost: runs with and without a browser")
    add("--drafters", action="store_true", help="only all drafters and gamma policies, 4 prompts")
    add("--context", action="store_true", help="only the time of a round by length of context")
    add("--kernels", action="store_true", help="only the models' matrix products, by kernel")
    add("--rival", type=Path, help="only against llama.cpp, whose programs are in this folder")
    add("--json", type=Path, help="also write the results to this file")
    add_settings(parser)


def main(options: argparse.Namespace) -> None:
    """Measure; print tables and the environment. Raises `SpecvizError` for invalid options."""
    if options.repeats < 1:
        raise SpecvizError(f"--repeats is {options.repeats}: use 1 or more.")
    if min(options.threads or [1]) < 1:
        raise SpecvizError(f"--threads has {min(options.threads)}: use numbers from 1 on.")
    if options.page:
        print(*_page_lines(page_cost(options.repeats)), sep="\n")
        return
    settings = replace(settings_from(options), ignore_eos=True)
    decider = scripted(options.acceptance) if options.acceptance is not None else None
    threads = options.threads or thread_counts()
    pair, prompts = _pair_and_prompts(options)
    if options.drafters:
        _compare_drafters(pair, settings, options)
        return
    if options.kernels:
        if not has_numba():
            raise SpecvizError("--kernels needs numba: pip install numba.")
        from .kernels import kernel_lines

        print(*kernel_lines(pair, KERNEL_ROWS), sep="\n")
        return
    if options.rival:
        rival_report(options.rival, pair, prompts, settings, options.repeats, options.json)
        return
    if options.context:
        print(*_context_lines(pair, settings, options.repeats), sep="\n")
        return
    print(
        f"{len(prompts)} prompts, {options.repeats} repeats, gamma {settings.gamma}, "
        f"{settings.max_new_tokens} tokens each\n"
    )
    if decider:
        print(
            f"verdicts are scripted: every draft is kept with probability {options.acceptance}, "
            "so text, alpha and tau say nothing about these models\n"
        )
    rows: list[Row] = []
    best: list[Best] = []
    for temperature in options.temperatures:
        at = replace(settings, temperature=temperature)
        some, one, header = measured(
            pair,
            prompts,
            at,
            options.repeats,
            with_generate=not options.lanes_only,
            threads=threads if pair.device.type == "cpu" else threads[:1],
            decider=decider,
        )
        for row in some:
            print(*_lines(row), "", sep="\n")
        print(*_best_lines(one), "", sep="\n", flush=True)
        rows += some
        best.append(one)
    environment = {**_environment(header), **_startup(pair)}
    _report(options, settings, (rows, best), environment, floors(pair, rows[0].context))


def _compare_drafters(pair: Pair, settings: Settings, options: argparse.Namespace) -> None:
    named = preset_prompts()
    for temperature in options.temperatures:
        at = replace(settings, temperature=temperature)
        scores, left_out = compare_drafters(pair, named, at, options.repeats)
        print(f"speed-up at temperature {temperature}, gamma up to {settings.gamma}", end=", ")
        print(f"{settings.max_new_tokens} tokens, medians of {options.repeats}\n")
        print(*score_lines(scores, list(named)), *left_out, "", sep="\n", flush=True)


def _pair_and_prompts(options: argparse.Namespace) -> tuple[Pair, list[str]]:
    if options.shape:
        return shaped_pair(options.shape), _number_prompts(options.count)
    prompts = _prompts(options.prompts, options.count)
    return load_pair("+".join(options.models) if options.models else options.pair), prompts


def _report(
    options: argparse.Namespace,
    settings: Settings,
    results: tuple[list[Row], list[Best]],
    environment: dict[str, Any],
    least: dict[str, Floor],
) -> None:
    """Print the floors and the environment; write all results to the file of --json."""
    rows, best = results
    ones = [row.pass_seconds.get(1) for row in rows]
    steps = [row.draft_step_seconds for row in rows]
    measured_seconds = {
        role: min(filter(None, seconds), default=None)
        for role, seconds in (("target", ones), ("draft", steps))
    }
    for role, floor in least.items():
        print(_floor_line(role, floor, measured_seconds[role]))
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    if options.json:
        result = {
            "settings": asdict(settings),
            "environment": environment,
            "scripted_acceptance": options.acceptance,
            "floors": {role: {"seconds": f.seconds, **asdict(f)} for role, f in least.items()},
            "rows": [asdict(row) for row in rows],
            "best": [asdict(one) for one in best],
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def _floor_line(role: str, floor: Floor, seconds: float | None) -> str:
    what = {"target": "a one-token target pass", "draft": "a draft step"}[role]
    gap = f", {seconds / floor.seconds:.1f} times the floor" if seconds else ""
    return (
        f"floor of {what}: {_milliseconds(floor.seconds)}, to read {floor.bytes / 1e6:.1f} MB of "
        f"weights and of {floor.cached} cached tokens at {floor.bytes_per_second / 1e9:.1f} GB/s "
        f"(the measured speed of reading a buffer of that size repeatedly); "
        f"measured {_milliseconds(seconds)}{gap}"
    )


def _context_lines(pair: Pair, settings: Settings, repeats: int) -> Iterator[str]:
    yield f"median round, gamma {settings.gamma}, temperature {settings.temperature}"
    for lane, by_length in context_costs(pair, settings, CONTEXTS, repeats).items():
        (early, few), (late, many) = by_length.items()
        yield (
            f"  {LANE_LABELS[lane]:20} {_milliseconds(few)} after {early} tokens, "
            f"{_milliseconds(many)} after {late}: {many / few:.2f} times"
        )


def _lines(row: Row) -> Iterator[str]:
    yield f"temperature {row.temperature}, threads: {row.threads}"
    for name, rate in row.tokens_per_second.items():
        yield f"  {name:20} {rate.median:7.1f} tokens/s  ({rate.low:.1f} - {rate.high:.1f})"
    figures = {
        "speed-up": _spread(row.speedup),
        "speed-up, wall": _spread(row.speedup_wall),
        "tokens/s, wall": ", ".join(f"{n} {r.median:.1f}" for n, r in row.wall_rates.items()),
        "alpha": shown_number(row.alpha, 3),
        "beta": shown_number(row.beta, 3),
        "efficiency": shown_number(row.efficiency, 3),
        "tau": shown_number(row.tau, 2),
        "c": shown_number(row.c, 3),
        "draft step": _milliseconds(row.draft_step_seconds),
        "target pass": ", ".join(
            f"{width}: {_milliseconds(seconds)}" for width, seconds in row.pass_seconds.items()
        ),
    }
    if row.parts is not None:
        figures |= _part_figures(row.parts)
    if row.identical is not None:
        figures["same text"] = f"{row.identical}/{row.prompts} prompts"
    for name, value in figures.items():
        yield f"  {name:20} {value}"


def _best_lines(best: Best) -> Iterator[str]:
    yield f"temperature {best.temperature}, each way with the threads that suit it best"
    for name, rate in best.tokens_per_second.items():
        yield f"  {name:20} {rate.median:7.1f} tokens/s  (threads: {best.threads[name]})"
    for names, ratio in best.ratios.items():
        yield f"  {names}: {_spread(ratio)}"


def _part_figures(parts: RoundParts) -> dict[str, str]:
    *times, outside = asdict(parts).items()
    shown = ", ".join(f"{name.replace('_', ' ')} {_milliseconds(value)}" for name, value in times)
    return {"a round": shown, "overhead per round": f"{outside[1]:.1%}: all but the models' passes"}


def _page_lines(cost: dict[str, dict[str, float]]) -> Iterator[str]:
    head = ("with the page", "without", "ratio", "beside a loop", "ratio")
    yield f"{'':22} {head[0]:>14} {head[1]:>9} {head[2]:>6} {head[3]:>14} {head[4]:>6}"
    for name, watched in cost["page"].items():
        alone, beside = cost["alone"][name], cost["loop"][name]
        unit = "s, header to end" if name == "seconds" else f"{name}, tokens/s"
        yield (
            f"{unit:22} {watched:14.2f} {alone:9.2f} {watched / alone:6.3f} "
            f"{beside:14.2f} {beside / alone:6.3f}"
        )
    yield "The loop only keeps another core busy: it shows what any other program costs here."


def _startup(pair: Pair) -> dict[str, float]:
    """The seconds of capturing and compiling, if an engine did that."""
    models = [model for model in (pair.target, pair.draft) if model is not None]
    seconds = sum(map(startup_seconds, models))
    return {"startup_seconds": round(seconds, 2)} if seconds else {}


def _environment(header: Header) -> dict[str, Any]:
    cuda = torch.cuda.is_available()
    # Linux counts the resident set in KiB, macOS in bytes.
    unit = 1 if platform.system() == "Darwin" else 1024
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {
        "device": header.device,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "processor": header.processor,
        "dtype": header.dtype,
        "target": f"{header.target['name']} ({header.target['form']})",
        "draft": f"{header.draft['name']} ({header.draft['form']})" if header.draft else None,
        "peak_mb": round((torch.cuda.max_memory_allocated() if cuda else resident) / 2**20),
        **header.versions,
    }


def _spread(value: Spread | None) -> str:
    if value is None:
        return "too short to compare"
    return f"{value.median:.2f} ({value.low:.2f} - {value.high:.2f})"


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.2f} ms"


def _number_prompts(count: int) -> list[str]:
    """Prompts of 32 tokens for a pair whose tokens are numbers."""
    return [" ".join(str(7 * i + 13 * n) for i in range(32)) for n in range(max(1, count))]


def _prompts(path: Path | None, count: int) -> list[str]:
    """The first `count` prompts of a JSON list; by default those held out from training."""
    path = path or ASSETS / "pair" / "prompts.json"
    try:
        texts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecvizError(f"{path.name} cannot be read as a JSON list of prompts.") from error
    if count < 1 or not texts or not all(isinstance(t, str) for t in texts):
        raise SpecvizError(f"{path.name} must be a JSON list of texts, and --count at least 1.")
    return list(texts[:count])
