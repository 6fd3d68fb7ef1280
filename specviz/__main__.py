"""`python -m specviz VERB`: what the page does, without the page."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import bench, train
from .engine import spare_threads
from .errors import SpecvizError, TraceError
from .export import rounds_csv, tokens_csv
from .options import add_settings, settings_from
from .pairs import load_pair
from .race import race
from .recording import file_summary
from .standalone import standalone_html
from .terminal import event_line, figures, legend
from .trace import Event, Trace


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status. A user's mistake is one line on stderr."""
    options = _parser().parse_args(arguments)
    try:
        options.verb(options)
    except SpecvizError as error:
        print(f"specviz: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specviz", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    run = verbs.add_parser("run", help="race on one prompt, in the terminal")
    run.add_argument("prompt")
    run.add_argument("--pair", default="builtin", help="'builtin' or 'target-id+draft-id'")
    run.add_argument("--save", metavar="FILE", help="also write the trace (.json or .json.gz)")
    run.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    add_settings(run)
    run.set_defaults(verb=_run)

    record = verbs.add_parser("record", help="race on one prompt and keep the run in a file")
    record.add_argument("prompt")
    record.add_argument("--out", metavar="FILE", required=True, help=".json or .json.gz")
    record.add_argument("--pair", default="builtin", help="'builtin' or 'target-id+draft-id'")
    add_settings(record)
    record.set_defaults(verb=_record)

    check = verbs.add_parser("check", help="read recordings as strictly as the page does")
    check.add_argument("files", metavar="FILE", nargs="+")
    check.set_defaults(verb=_check)

    export = verbs.add_parser("export", help="turn a recording into a page or into tables")
    export.add_argument("file", metavar="FILE", help="a recording")
    export.add_argument("--html", metavar="OUT", help="write a page that plays from disk")
    export.add_argument("--csv", metavar="DIR", help="write tokens.csv and rounds.csv there")
    export.set_defaults(verb=_export)

    measure = verbs.add_parser("bench", help="measure speed, on several prompts")
    bench.add_arguments(measure)
    measure.set_defaults(verb=bench.main)

    make = verbs.add_parser("train", help="make a pair from a corpus")
    train.add_arguments(make)
    make.set_defaults(verb=train.main)
    return parser


def _run(options: argparse.Namespace) -> None:
    settings = settings_from(options)
    tty = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    color = options.color == "always" or (options.color == "auto" and tty)
    spare_threads()
    pair = load_pair(options.pair)
    print(legend(color=color))
    events: list[Event] = []
    for event in race(pair, options.prompt, settings):
        events.append(event)
        line = event_line(event, color=color)
        if line is not None:
            print(line, flush=True)
    trace = Trace.from_events(events)
    print("", trace.header.prompt + trace.text("speculative"), "", *figures(trace), sep="\n")
    if options.save:
        trace.save(options.save)


def _record(options: argparse.Namespace) -> None:
    settings = settings_from(options)
    if not Path(options.out).absolute().parent.is_dir():
        raise TraceError(f"there is no folder for {options.out}: make it first.")
    spare_threads()
    events = race(load_pair(options.pair), options.prompt, settings)
    Trace.from_events(events).save(options.out)
    print(file_summary(options.out))


def _check(options: argparse.Namespace) -> None:
    for path in options.files:
        print(file_summary(path))


def _export(options: argparse.Namespace) -> None:
    if not (options.html or options.csv):
        raise TraceError("name what to write: --html OUT, --csv DIR, or both.")
    trace = Trace.load(options.file)
    texts: dict[Path, str] = {}
    if options.html:
        texts[Path(options.html)] = standalone_html(trace)
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


if __name__ == "__main__":
    sys.exit(main())
