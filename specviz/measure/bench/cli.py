"""`python -m specviz bench`: measured speeds as a table and as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...environment import ASSETS
from ...errors import SpecvizError
from ...options import add_settings, check_writable, real, settings_from, whole
from ...pairs.load import load_pair
from ...pairs.spec import address_of, is_row
from ...prompts import OWN_SET, in_turn, prompts_file
from .batch import LARGEST, batch_report
from .drafters import comparison_report
from .lanes import lanes_report
from .random_models import SHAPES, shaped_pair
from .servers import servers_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench` to a parser."""
    add = parser.add_argument
    add("--pair", default="builtin", help="'builtin' or 'target-id+draft-id'")
    add("--target-url", metavar="URL", help="where a server holds the target of MODEL+DRAFT")
    add("--shape", choices=SHAPES, help="models of well-known sizes with random weights")
    add("--acceptance", type=real(0, 1), help="keep each draft with this probability (scripted)")
    prompts = "a prompt in each line, JSON, or JSONL; default: held-out ones"
    add("--prompts", type=Path, help=prompts)
    count = "number of prompts, default 5; tables of variants have their own"
    add("--count", type=whole(1), help=count)
    add("--repeats", type=whole(1), help="default 3; tables of variants have their own")
    add("--temperatures", type=float, nargs="+", help="default 0, 0.7 and 1, or those that matter")
    threads = "default: powers of two up to the processors"
    add("--threads", type=whole(1, 4096), nargs="+", help=threads)
    add("--lanes-only", action="store_true", help="do not measure transformers' generate()")
    add("--out", type=Path, metavar="FILE", help="also write the results there, as JSON")
    speculating = "beside --server: servers of the same target that speculate by themselves"
    add("--server-speculating", nargs="+", default=[], metavar="URL", help=speculating)
    _add_modes(parser.add_mutually_exclusive_group())
    add_settings(parser)


def _add_modes(group: argparse._MutuallyExclusiveGroup) -> None:
    add = group.add_argument
    add("--drafters", action="store_true", help="only all drafters, also on the page's prompts")
    add("--policies", action="store_true", help="the same with every gamma policy")
    add("--verdicts", action="store_true", help="the same of all verdicts, with one drafter")
    server = (
        "only against servers on this machine that serve the same target alone, such as "
        "http://127.0.0.1:8000/v1; see --server-speculating"
    )
    add("--server", nargs="+", metavar="URL", help=server)
    batch = "only passes over several texts at once, and from which batch on drafts stop paying"
    add("--batch", type=whole(1, LARGEST), nargs="+", metavar="ROWS", help=batch)


def main(options: argparse.Namespace) -> None:
    """Measure; print tables and the environment. Raises `SpecvizError` for invalid options."""
    mode = next((name for name in MODES if getattr(options, name)), "")
    for name, usual in SIZES.get(mode, USUAL).items():
        if getattr(options, name) is None:
            setattr(options, name, usual)
    if options.out:
        check_writable(options.out)
    if options.server_speculating and not options.server:
        raise SpecvizError("--server-speculating needs --server: the same target, served alone.")
    settings_from(options)  # what is wrong with them is said before anything is loaded
    if options.shape:
        prompts, pair = _number_prompts(options.count), shaped_pair(options.shape)
    else:
        prompts = _prompts(options)[: options.count]
        pair = load_pair(address_of(options.target_url, options.pair))
    settings = replace(settings_from(options, pair.drafters[0]), ignore_eos=True)
    measured: Callable[..., Any] = MODES.get(mode, lanes_report)
    results = measured(pair, prompts, settings, options)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1, default=asdict) + "\n")


def _prompts(options: argparse.Namespace) -> list[str]:
    """Those of the file; else the pair's own, one of each kind first, or the held-out ones."""
    own = ASSETS / options.pair / OWN_SET
    if options.prompts is None and is_row(options.pair) and own.is_file():
        return [one.text for one in in_turn(prompts_file(own))]
    return [one.text for one in prompts_file(options.prompts or ASSETS / "pair" / "prompts.json")]


MODES: dict[str, Callable[..., Any]] = {
    "drafters": partial(comparison_report, "drafters"),
    "policies": partial(comparison_report, "policies"),
    "verdicts": partial(comparison_report, "verdicts"),
    "server": servers_report,
    "batch": batch_report,
}
"""What is measured instead of the lanes, by the name of the option: prints it, and returns what
--out keeps."""

USUAL: dict[str, Any] = {"count": 5, "repeats": 3, "temperatures": [0.0, 0.7, 1.0]}
SIZES: dict[str, dict[str, Any]] = {
    "drafters": {"count": 10, "repeats": 1, "temperatures": [0.0, 0.7]},
    "policies": {"count": 3, "repeats": 1, "temperatures": [0.0, 0.7]},
    # In a greedy run all verdicts keep the same drafts.
    "verdicts": {"count": 10, "repeats": 2, "temperatures": [0.7, 1.0]},
}
"""How much a mode measures where the options do not say: minutes on two cores."""


def _number_prompts(count: int) -> list[str]:
    """Prompts of 32 tokens for a pair whose tokens are numbers."""
    return [" ".join(str(7 * i + 13 * n) for i in range(32)) for n in range(count)]
