"""The verbs of `python -m specviz`: the page, races, recordings, benchmarks and training."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from . import serve
from .core.engine import spare_threads
from .core.events import Event, Round
from .core.race import race
from .environment import SERVED
from .errors import TraceError
from .inspect import guess
from .inspect.difference import explain_difference
from .inspect.parting import difference_lines, parting_of
from .measure.bench import cli as bench
from .measure.sweep import cli as choose
from .options import (
    Parser,
    add_color,
    add_settings,
    also_called,
    check_writable,
    colored,
    real,
    settings_from,
    whole,
)
from .pairs.doctor import MARKS, examine, examine_pair
from .pairs.load import load_any
from .pairs.memory import device_memory
from .pairs.pair import Pair, Racing, checked_pair
from .pairs.progress import terminal_watcher
from .pairs.served import address_of
from .pairs.sizes import QUANTIZED, TYPICAL_CONTEXT, shown_bytes
from .pairs.spec import ServedSpec, ServerSpec, WatchedSpec, operator_spec, parse_pair
from .pairs.table import pairs_by_fit
from .pairs.weights import DTYPES
from .runs.html import embedded_html, standalone_html
from .runs.recording import UNVERIFIED, file_summary, read_file
from .runs.rerun import pair_named, rerun, rerun_lines
from .runs.tables import rounds_csv, tokens_csv
from .runs.terminal import event_line, legend, metric_lines
from .runs.trace import Trace
from .settings import Settings
from .several import beside, parsed_lane
from .train import cli as train
from .variables import variables_table


@dataclass(frozen=True)
class Verb:
    """help: what it does, in a line. options: adds its options to a parser. do: does it, and
    returns the exit status, None for 0."""

    help: str
    options: Callable[[argparse.ArgumentParser], object]
    do: Callable[[argparse.Namespace], int | None]


def do_verb(arguments: Sequence[str]) -> int:
    """Run the verb of a command line; returns the exit status. Raises `SpecvizError`."""
    options = _parser().parse_args(arguments)
    return int(options.do(options) or 0)


def _parser() -> Parser:
    parser = Parser(prog="specviz", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for name, verb in VERBS.items():
        one = verbs.add_parser(name, help=verb.help)
        verb.options(one)
        one.set_defaults(do=verb.do)
    return parser


def _run_options(parser: argparse.ArgumentParser) -> None:
    _add_race(parser)
    out = parser.add_argument("--out", metavar="FILE", help="also write the run (.json, .json.gz)")
    also_called(parser, "--save", out)
    add_color(parser)


def _record_options(parser: argparse.ArgumentParser) -> None:
    _add_race(parser)
    parser.add_argument("--out", metavar="FILE", required=True, help=".json or .json.gz")


def _check_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+")
    add("--rerun", action="store_true", help="also run them once more here, and compare")
    _add_pair(parser)
    parser.set_defaults(pair=None)


def _export_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE", help="a recording")
    add("--html", metavar="OUT", help="write a page that plays from disk")
    add("--embed", metavar="OUT", help="write a small player for a frame in an article")
    add("--csv", metavar="DIR", help="write tokens.csv and rounds.csv there")


def _difference_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a recording")
    parser.add_argument("--of", metavar="LANE", help="which lane with drafts; else the first")
    _add_pair(parser)


def _sweep_options(parser: argparse.ArgumentParser) -> None:
    _add_pair(parser)
    choose.add_arguments(parser)


def _doctor_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("target", metavar="TARGET", help="a hub id, a folder or a pair's name")
    add("draft", metavar="DRAFT", nargs="?", help="a hub id or a folder")
    _add_url(parser)
    add("--json", action="store_true", help="print the report as JSON")
    add("--context", type=whole(1), default=TYPICAL_CONTEXT, help="tokens in the caches")
    add("--free", type=real(0, 1e6), metavar="GB", help="assume so much free memory")
    _add_loading(parser)


def _no_options(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def _add_race(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt")
    _add_pair(parser)
    add_settings(parser)
    _add_lanes(parser)


def _add_pair(parser: argparse.ArgumentParser) -> None:
    names = (
        "'builtin', a name that `pairs` lists, 'target-id+draft-id', 'target-id+head-id', "
        "'target-id+none', 'http://HOST:PORT/v1#MODEL+draft-id' for a target on a server, or "
        "'http://HOST:PORT/v1#MODEL' for a server that speculates by itself"
    )
    parser.add_argument("--pair", default="builtin", help=names)
    _add_url(parser)
    alone = "where a second server holds the target alone, as the baseline of one that is watched"
    parser.add_argument("--baseline-url", metavar="URL", help=alone)
    _add_loading(parser)


def _add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target-url",
        metavar="URL",
        help="where a server holds the target, such as http://HOST:PORT/v1: the pair is then "
        "MODEL+DRAFT, or MODEL to watch the server speculate; its key is SPECVIZ_REMOTE_KEY",
    )


def _add_lanes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lane",
        action="append",
        default=[],
        metavar="CHANGES",
        help="also race a lane with these settings, such as drafter=ngram,gamma=3 (repeatable)",
    )


def _lanes(options: argparse.Namespace, pair: Pair | Racing | None = None) -> dict[str, Settings]:
    """The settings of all lanes; those without a drafter take the pair's."""
    own = settings_from(options, pair.drafters[0]) if pair else settings_from(options)
    return beside(own, map(parsed_lane, options.lane))


def _add_loading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtype", choices=tuple(DTYPES), help="fp32 on a CPU if not given")
    parser.add_argument("--quantize", choices=QUANTIZED, help="the target's weights, on a GPU")
    parser.add_argument("--draft-quantize", choices=QUANTIZED, help="the draft's, on a GPU")
    parser.add_argument("--device", help="cpu, cuda or cuda:1, for example")


def _loading(options: argparse.Namespace) -> dict[str, Any]:
    names = ("dtype", "quantize", "draft_quantize", "device")
    return {name: getattr(options, name) for name in names}


def _named_pair(options: argparse.Namespace) -> Pair:
    return checked_pair(_raced(options))


def _raced(options: argparse.Namespace) -> Pair | Racing:
    name = address_of(options.target_url, options.pair, options.baseline_url)
    return load_any(name, on_progress=terminal_watcher(), **_loading(options))


def _variables(_: argparse.Namespace) -> None:
    print(variables_table())


def _run(options: argparse.Namespace) -> None:
    _lanes(options)  # what is wrong with them is said before the models are loaded
    if options.out:
        check_writable(options.out)
    color = colored(options)
    spare_threads()
    pair = _raced(options)
    print(legend(color=color))
    events: list[Event] = []
    for event in race(pair, options.prompt, _lanes(options, pair)):
        # What a watched server's steps drafted may be told at its end, by the same rounds again.
        if event not in events and not (isinstance(event, Round) and event.untold):
            _print_event(event, color)
        events.append(event)
    trace = Trace.from_events(events)
    for one in trace.rounds:
        if one.untold:
            _print_event(one, color)
    for lane in trace.header.speculative:
        named = [] if trace.header.lanes is None else [f"{lane}:"]
        begun = trace.header.prompt if trace.header.question is None else ""
        print("", *named, begun + trace.text(lane), sep="\n")
    print("", *metric_lines(trace), sep="\n")
    if options.out:
        trace.save(options.out)


def _print_event(event: Event, color: bool) -> None:
    line = event_line(event, color=color)
    if line is not None:
        print(line, flush=True)


def _sweep(options: argparse.Namespace) -> None:
    request = choose.request_from(options)
    choose.main(options, partial(_named_pair, options), request)


def _record(options: argparse.Namespace) -> None:
    _lanes(options)
    check_writable(options.out)
    spare_threads()
    pair = _raced(options)
    events = race(pair, options.prompt, _lanes(options, pair))
    Trace.from_events(events).save(options.out)
    print(file_summary(options.out))


def _check(options: argparse.Namespace) -> int:
    pairs: dict[str, Pair] = {}
    differs = False
    for path in options.files:
        print(file_summary(path))
        if not options.rerun:
            continue
        trace, _ = read_file(path)
        name = options.pair or pair_named(trace.header)
        if name not in pairs:
            pairs[name] = _named_pair(argparse.Namespace(**{**vars(options), "pair": name}))
        found = rerun(trace, pairs[name])
        print(*rerun_lines(found), sep="\n")
        differs = differs or not found.same
    print(UNVERIFIED)
    return 1 if differs else 0


def _pairs(options: argparse.Namespace) -> None:
    devices = device_memory()
    cpu, free = devices[0].device.type == "cpu", sum(memory.free for memory in devices)
    print(f"{devices[0].device.type} with {shown_bytes(free)} free")
    for group, pairs in pairs_by_fit(free, cpu=cpu).items():
        print(f"\n{group}:" if pairs else f"\n{group}: none")
        for pair in pairs:
            need = shown_bytes(pair.bytes(pair.precision(cpu=cpu))) + ("" if pair.sized else "+")
            models = (pair.target, *pair.parts)
            gate = " (gated)" if any(one.gated for one in models) else ""
            plain = any(one.safetensors is False for one in models)
            form = " (no safetensors on its page)" if plain else ""
            print(f"  {pair.name:20} {need:>9}  {pair.shows}{gate}{form}")


def _doctor(options: argparse.Namespace) -> int:
    named = "+".join(one for one in (options.target, options.draft) if one)
    whole = address_of(options.target_url, named if options.target_url else options.target)
    spec = _on_server(whole)
    report = (
        examine_pair(spec)
        if spec and (options.target_url or not options.draft)
        else examine(
            options.target,
            options.draft,
            free=None if options.free is None else int(options.free * 1e9),
            tokens=options.context,
            **_loading(options),
        )
    )
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        for finding in report.findings:
            print(f"{MARKS[finding.level]} {finding.level:8}{finding.topic:15}{finding.sentence}")
        for precision, size in report.memory.items():
            print(f"  as {precision:9} {shown_bytes(size):>10} of {shown_bytes(report.free)}")
        print(report.summary)
    return 1 if report.verdict == "stop" else 0


def _on_server(name: str) -> ServerSpec | None:
    """The servers that a name is about; None for the names of pairs here, and of single models."""
    if name == SERVED:
        return operator_spec()
    if not name.strip().startswith(("http://", "https://")):
        return None
    spec = parse_pair(name)
    return spec if isinstance(spec, ServedSpec | WatchedSpec) else None


def _explain_difference(options: argparse.Namespace) -> int:
    trace, _ = read_file(options.file)
    if parting_of(trace, options.of) is None:
        print("Both lanes wrote the same text: there is no difference to explain.")
        return 0
    found = explain_difference(_named_pair(options), trace, options.of)
    assert found is not None
    print(*difference_lines(found), sep="\n")
    return 1 if found.verdict == "bug" else 0


def _export(options: argparse.Namespace) -> None:
    if not (options.html or options.embed or options.csv):
        raise TraceError("name what to write: --html OUT, --embed OUT, --csv DIR, or several.")
    trace, _ = read_file(options.file)
    texts: dict[Path, str] = {}
    if options.html:
        texts[Path(options.html)] = standalone_html(trace)
    if options.embed:
        texts[Path(options.embed)] = embedded_html(trace)
    if options.csv:
        texts[Path(options.csv) / "tokens.csv"] = tokens_csv(trace)
        texts[Path(options.csv) / "rounds.csv"] = rounds_csv(trace)
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise TraceError(f"{path} cannot be written: {error.strerror}.") from error
        print(path)


def _prove_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="DRAFTER|VERDICT", help="what is tested, by name")
    parser.add_argument("--runs", type=int, default=3000, help="texts; default %(default)s")


def _prove(options: argparse.Namespace) -> int:
    from .inspect.prove import report  # imports torch

    return report(options.kind, options.runs)


VERBS: dict[str, Verb] = {
    "page": Verb(
        "serve the page, by default on 127.0.0.1:7860", serve.add_arguments, serve.serve_page
    ),
    "run": Verb("race on one prompt, in the terminal", _run_options, _run),
    "record": Verb("race on one prompt and keep the run in a file", _record_options, _record),
    "check": Verb("read recordings as strictly as the page does", _check_options, _check),
    "export": Verb("convert a recording to a page or to tables", _export_options, _export),
    "explain-difference": Verb(
        "say if greedy lanes part by a tie within rounding or by a bug",
        _difference_options,
        _explain_difference,
    ),
    "sweep": Verb("find the drafter and gamma to deploy, if any", _sweep_options, _sweep),
    "bench": Verb("measure speed on several prompts", bench.add_arguments, bench.main),
    "pairs": Verb("list the named pairs by what fits this machine", _no_options, _pairs),
    "doctor": Verb("check if two models can race, before any download", _doctor_options, _doctor),
    "guess": Verb(
        "what a draft would get right of a closed model's text", guess.add_arguments, guess.main
    ),
    "prove": Verb(
        "test if a drafter or a verdict keeps the target's distribution", _prove_options, _prove
    ),
    "train": Verb(
        "train a pair on books, or a better draft for a target", train.add_arguments, train.main
    ),
    "variables": Verb("list the environment variables that it reads", _no_options, _variables),
}
