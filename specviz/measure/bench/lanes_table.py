"""The lanes against each other and against transformers' `generate()`, as tables and as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch

from ...core.engine import thread_counts
from ...core.events import Header
from ...pairs.pair import Pair
from ...runs.tables import rate_line, shown_milliseconds, shown_number
from ...settings import Settings
from ...sides.fast_gpu.engine import startup_seconds
from .lanes import Best, Row, measured
from .roofline import Floor, floors

if TYPE_CHECKING:
    from ...core.protocols import Decide


def lanes_report(
    pair: Pair,
    prompts: Sequence[str],
    settings: Settings,
    options: argparse.Namespace,
    decider: Decide | None,
) -> None:
    """Measure at every temperature, print tables, floors and the environment, and write all
    results to the file of --out. decider: scripts the verdicts."""
    print(
        f"{len(prompts)} prompts, {options.repeats} repeats, gamma {settings.gamma}, "
        f"{settings.max_new_tokens} tokens each\n"
    )
    if decider:
        print(
            f"verdicts are scripted: every draft is kept with probability {options.acceptance}, "
            "so text, alpha and tau say nothing about these models\n"
        )
    threads = options.threads or thread_counts()
    rows: list[Row] = []
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
        for row in some:
            print(*_lines(row), "", sep="\n")
        print(f"temperature {temperature}, each way with the threads that suit it best")
        for name, rate in one.tokens_per_second.items():
            print(rate_line(name, rate, 20, f"(threads: {one.threads[name]})"))
        print(*(f"  {names}: {ratio.shown()}" for names, ratio in one.ratios.items()), sep="\n")
        print(flush=True)
        rows += some
        best.append(one)
    # Startup: the seconds of capturing and compiling, if an engine did that.
    startup = sum(startup_seconds(one) for one in (pair.target, pair.draft) if one is not None)
    environment = _environment(header) | ({"startup_seconds": round(startup, 2)} if startup else {})
    least = floors(pair, rows[0].context, settings.drafter)
    for role, floor in least.items():
        print(_floor_line(role, floor, rows))
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    if options.out:
        result = {
            "settings": asdict(settings),
            "environment": environment,
            "scripted_acceptance": options.acceptance,
            "floors": {role: {"seconds": f.seconds, **asdict(f)} for role, f in least.items()},
            "rows": [asdict(row) for row in rows],
            "best": [asdict(one) for one in best],
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n")


def _floor_line(role: str, floor: Floor, rows: Sequence[Row]) -> str:
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


def _lines(row: Row) -> Iterator[str]:
    yield f"temperature {row.temperature}, threads: {row.threads}"
    for name, rate in row.tokens_per_second.items():
        yield rate_line(name, rate, 20)
    short = "too short to compare"
    figures = {
        "speed-up": row.speedup.shown() if row.speedup else short,
        "speed-up, wall": row.speedup_wall.shown() if row.speedup_wall else short,
        "tokens/s, wall": ", ".join(f"{n} {r.median:.1f}" for n, r in row.wall_rates.items()),
        "alpha": shown_number(row.alpha, 3),
        "beta": shown_number(row.beta, 3),
        "efficiency": shown_number(row.efficiency, 3),
        "tau": shown_number(row.tau, 2),
        "c": shown_number(row.c, 3),
        "draft step": shown_milliseconds(row.draft_step_seconds),
        "other work": f"{shown_milliseconds(row.overhead_seconds)} per round",
        "target pass": ", ".join(
            f"{width}: {shown_milliseconds(seconds)}" for width, seconds in row.pass_seconds.items()
        ),
    }
    if row.identical is not None:
        figures["same text"] = f"{row.identical}/{row.prompts} prompts"
    for name, value in figures.items():
        yield f"  {name:20} {value}"


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
