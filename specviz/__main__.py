"""`python -m specviz VERB`: what the page does, without the page."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from . import bench, train
from .engine import spare_threads
from .errors import SpecvizError
from .options import add_settings, settings_from
from .pairs import load_pair
from .race import race
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


if __name__ == "__main__":
    sys.exit(main())
