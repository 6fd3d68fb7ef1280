"""`python -m specviz sweep`: which drafter and gamma to deploy with a pair, and whether at all."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ...base.options import real
from ...core.registry import swept_drafters
from ...core.settings import CHATS, GAMMA_POLICIES, Settings
from ...pairs.cli import add_pair, named_pair
from ...pairs.prompts import builtin_prompts, prompts_file
from .export import checked_out, lines_of, table_lines, write_sweep
from .types import Plan, SweepProgress, SweepRequest, SweepResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `sweep` to a parser."""
    add_pair(parser)
    usual = SweepRequest(())
    add = parser.add_argument
    add("--drafters", nargs="+", choices=swept_drafters(), default=list(usual.drafters))
    add("--gammas", type=int, nargs="+", default=list(usual.gammas), help="default 1 2 3 5 8")
    add("--policies", nargs="+", choices=GAMMA_POLICIES, default=list(usual.policies))
    add("--temperatures", type=float, nargs="+", default=list(usual.temperatures))
    add(
        "--prompts",
        metavar="FILE",
        help="a file of prompts: text with one per line, JSON, JSONL or CSV; default: the pair's",
    )
    add("--seconds", type=real(0), default=usual.seconds, help="time budget, default %(default)g")
    add(
        "--max-new-tokens",
        type=int,
        default=usual.base.max_new_tokens,
        help="length of each text, default %(default)s",
    )
    add("--top-k", type=int, default=0, help="default %(default)s, off")
    add("--top-p", type=float, default=1.0, help="default %(default)s, off")
    add("--seed", type=int, default=0, help="default %(default)s")
    add("--chat", choices=CHATS, default="auto", help="use of the chat template")
    add("--out", metavar="PATH", help="a folder, or a file in .csv, .json or .html")


def request_from(options: argparse.Namespace) -> SweepRequest:
    """Make the request from the options. Raises `SpecvizError`."""
    from .agenda import checked  # imports torch, which `--help` does not need

    if options.prompts is None:
        prompts = builtin_prompts(options.pair)
    else:
        prompts = prompts_file(options.prompts)
    base = Settings(
        max_new_tokens=options.max_new_tokens,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        chat=options.chat,
        ignore_eos=True,
    )
    request = SweepRequest(
        prompts=prompts,
        drafters=tuple(options.drafters),
        gammas=tuple(options.gammas),
        policies=tuple(options.policies),
        temperatures=tuple(options.temperatures),
        seconds=options.seconds,
        base=base,
    )
    return checked(request)


def main(options: argparse.Namespace) -> None:
    """Sweep; print the table and the recommendation, also after Ctrl-C. Raises `SpecvizError`."""
    from ...core.threads import limit_torch_threads
    from .sweep import sweep

    request = request_from(options)
    out: Path | None = None
    if options.out:
        out = checked_out(options.out)
    limit_torch_threads()
    pair = named_pair(options)
    for event in sweep(pair, request):
        if isinstance(event, Plan):
            print(_plan_line(event), flush=True)
            _progress(event.now)
        elif isinstance(event, SweepProgress):
            left = f"{event.seconds_left:.0f} s left"
            _progress(f"{event.done}/{event.total}  {left}  {event.now}")
    _progress("")
    assert isinstance(event, SweepResult)
    print("", *table_lines(event.rows), *lines_of(event), sep="\n")
    if out is not None:
        for path in write_sweep(event, out):
            print(path)


def _plan_line(plan: Plan) -> str:
    rows = f"{len(plan.rows)} rows"
    if len(plan.rows) == 1:
        rows = "1 row"
    kinds = ", ".join(f"{kind} {count}" for kind, count in plan.kinds.items())
    return f"{rows}, prompts: {kinds}"


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)
