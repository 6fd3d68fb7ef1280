"""The verbs of `python -m specviz`: the page, races, recordings, benchmarks and training."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from .console import degrade_signs, escaped
from .core.kinds import resolved
from .errors import SpecvizError
from .options import Parser


class Verb(NamedTuple):
    """help: what it does, in a line. do: the function of `module` that does it, given its parsed
    options, and returns the exit status, None for 0. options: the one that adds its options to a
    parser, if it has any.

    They are names, so that a command line imports only what its own verb needs.
    """

    help: str
    module: str
    do: str = "main"
    options: str | None = "add_arguments"


VERBS = {
    "page": Verb("serve the page, by default on 127.0.0.1:7860", ".serve", "serve_page"),
    "run": Verb("race on one prompt, in the terminal", ".runs.cli", "run", "add_run"),
    "record": Verb(
        "race on one prompt and keep the run in a file", ".runs.cli", "record", "add_record"
    ),
    "check": Verb(
        "read recordings as strictly as the page does", ".runs.cli", "check", "add_check"
    ),
    "export": Verb(
        "convert a recording to a page or to tables", ".runs.cli", "export", "add_export"
    ),
    "explain-difference": Verb(
        "say if greedy lanes part by a tie within rounding or by a bug",
        ".runs.cli",
        "explain",
        "add_difference",
    ),
    "sweep": Verb("find the drafter and gamma to deploy, if any", ".measure.sweep.cli"),
    "bench": Verb("measure speed on several prompts", ".measure.bench.cli"),
    "pairs": Verb(
        "list the named pairs by what fits this machine", ".pairs.cli", "list_pairs", None
    ),
    "fetch": Verb("bring a named pair to this machine", ".pairs.cli", "fetch", "add_fetch"),
    "doctor": Verb(
        "check if two models can race, before any download", ".pairs.cli", "doctor", "add_doctor"
    ),
    "guess": Verb("what a draft would get right of a closed model's text", ".inspect.guess"),
    "prove": Verb(
        "test if a drafter or a verdict keeps the target's distribution", ".inspect.prove"
    ),
    "train": Verb("train a pair on books, or a better draft for a target", ".train.cli"),
    "variables": Verb(
        "list the environment variables that it reads", ".variables", "print_variables", None
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one verb; returns the exit status. A user's mistake is one line on stderr."""
    degrade_signs()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            options = parser_of(words).parse_args(words)
            verb = VERBS[options.verb]
            return int(resolved(f"{verb.module}:{verb.do}")(options) or 0)
        finally:  # also after --help
            sys.stdout.flush()
    except SpecvizError as error:
        print(f"specviz: {escaped(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # a reader who has had enough, as `head` has
        # Else the interpreter would try again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 130


def parser_of(arguments: Sequence[str]) -> Parser:
    """The parser of a command line: it knows all verbs, and the options of the one that is used."""
    parser = Parser(prog="specviz", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB", dest="verb")
    for name, verb in VERBS.items():
        one = verbs.add_parser(name, help=verb.help)
        if verb.options and name in arguments[:1]:
            resolved(f"{verb.module}:{verb.options}")(one)
    return parser


if __name__ == "__main__":
    sys.exit(main())
