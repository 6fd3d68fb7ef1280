"""`python -m specviz bench`: measured speeds as a table and as JSON."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from ...base.environment import ASSETS
from ...base.errors import SpecvizError
from ...base.options import check_writable, real, whole
from ...core.messages import TextPrompt
from ...inspect.shapes import SHAPES
from ...pairs.prompts import BUILTIN_SET, in_turn, prompts_file, prompts_for
from ...pairs.spec import address_of
from ...runs.settings_options import add_settings, settings_from
from ...runs.trace import write_atomically

MAX_BATCH = 1024  # texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench` to a parser."""
    add = parser.add_argument
    add("--pair", default="builtin", help="'builtin' or 'target-id+draft-id'")
    add(
        "--target-url",
        metavar="URL",
        help="address of the server that runs the target of MODEL+DRAFT",
    )
    add("--shape", choices=SHAPES, help="models of well-known sizes with random weights")
    add("--acceptance", type=real(0, 1), help="keep each draft with this probability (scripted)")
    add(
        "--prompts",
        type=Path,
        help="a file of prompts: text with one per line, JSON, JSONL or CSV; default: held-out "
        "prompts",
    )
    add("--count", type=whole(1), default=5, help="number of prompts, default 5")
    add("--repeats", type=whole(1), default=3, help="default 3")
    add("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0], help="default 0 0.7 1")
    add(
        "--threads",
        type=whole(1, 4096),
        nargs="+",
        help="default: powers of two up to the number of processors",
    )
    add("--lanes-only", action="store_true", help="do not measure transformers' generate()")
    add("--out", type=Path, metavar="FILE", help="also write the results to this file, as JSON")
    add(
        "--server-speculating",
        nargs="+",
        default=[],
        metavar="URL",
        help="with --server: servers of the same target that speculate on their own",
    )
    _add_modes(parser.add_mutually_exclusive_group())
    add_settings(parser)


def _add_modes(group: argparse._MutuallyExclusiveGroup) -> None:
    group.add_argument(
        "--server",
        nargs="+",
        metavar="URL",
        help="only compare with servers on this machine that run the same target alone, such as "
        "http://127.0.0.1:8000/v1; see --server-speculating",
    )
    group.add_argument(
        "--batch",
        type=whole(1, MAX_BATCH),
        nargs="+",
        metavar="ROWS",
        help="only measure passes over several texts at once, and the batch at which drafts stop "
        "paying",
    )


def main(options: argparse.Namespace) -> None:
    """Measure; print tables and the environment. Raises `SpecvizError` for invalid options."""
    from ...core.pair import checked_pair  # imports torch, which `--help` does not need
    from ...inspect.random_models import shaped_pair
    from ...pairs.load import load_pair
    from .batch import batch_report
    from .lanes import lanes_report
    from .servers import servers_report

    if options.out:
        check_writable(options.out)
    if options.server_speculating and not options.server:
        raise SpecvizError(
            "--server-speculating needs a baseline: name a server of the same "
            "target alone with --server."
        )
    settings_from(options)  # raises for invalid settings before anything is loaded
    if options.shape:
        prompts: list[TextPrompt] = [*_number_prompts(options.count)]
        pair = shaped_pair(options.shape)
    else:
        prompts = _prompts(options)[: options.count]
        pair = checked_pair(load_pair(address_of(options.target_url, options.pair)))
    settings = replace(settings_from(options, pair), ignore_eos=True)
    if options.server:
        results = servers_report(pair, prompts, settings, options)
    elif options.batch:
        results = batch_report(pair, prompts, settings, options)
    else:
        results = lanes_report(pair, prompts, settings, options)
    if options.out:
        text = json.dumps(results, indent=1, default=asdict) + "\n"
        write_atomically(options.out, text.encode())


def _prompts(options: argparse.Namespace) -> list[TextPrompt]:
    """The prompts of --prompts, else those that suit the pair, one of each kind first, else the
    held-out ones."""
    suited = prompts_for(options.pair)
    if options.prompts is not None:
        prompts = prompts_file(options.prompts)
    elif suited != BUILTIN_SET:
        prompts = in_turn(prompts_file(suited))
    else:
        prompts = prompts_file(ASSETS / "pair" / "prompts.json")
    return [prompt.content for prompt in prompts]


def _number_prompts(count: int) -> list[str]:
    """Prompts of 32 tokens for a pair whose tokens are numbers."""
    return [_number_prompt(13 * n) for n in range(count)]


def _number_prompt(first: int) -> str:
    return " ".join(str(7 * i + first) for i in range(32))
