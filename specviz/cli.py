"""The verbs of `python -m specviz`: the page, races, recordings, benchmarks and training."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from .core.kinds import resolved
from .options import Parser
from .variables import variables_table


@dataclass(frozen=True)
class Verb:
    """help: what it does, in a line. do: does it, given its parsed options, and returns the exit
    status, None for 0. options: adds its options to a parser, if it has any.

    Both are references, so that a command line imports only what its own verb needs.
    """

    help: str
    do: str
    options: str | None = None


def do_verb(arguments: Sequence[str]) -> int:
    """Run the verb of a command line; returns the exit status. Raises `SpecvizError`."""
    options = parser_of(arguments).parse_args(arguments)
    return int(resolved(VERBS[options.verb].do)(options) or 0)


def parser_of(arguments: Sequence[str]) -> Parser:
    """The parser of a command line: it knows all verbs, and the options of the one that is used."""
    parser = Parser(prog="specviz", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB", dest="verb")
    for name, verb in VERBS.items():
        one = verbs.add_parser(name, help=verb.help)
        if verb.options and name in arguments[:1]:
            resolved(verb.options)(one)
    return parser


def print_variables(_: argparse.Namespace) -> None:
    """Print the environment variables."""
    print(variables_table())


VERBS: dict[str, Verb] = {
    "page": Verb(
        "serve the page, by default on 127.0.0.1:7860", ".serve:serve_page", ".serve:add_arguments"
    ),
    "run": Verb("race on one prompt, in the terminal", ".runs.cli:run", ".runs.cli:add_run"),
    "record": Verb(
        "race on one prompt and keep the run in a file", ".runs.cli:record", ".runs.cli:add_record"
    ),
    "check": Verb(
        "read recordings as strictly as the page does", ".runs.cli:check", ".runs.cli:add_check"
    ),
    "export": Verb(
        "convert a recording to a page or to tables", ".runs.cli:export", ".runs.cli:add_export"
    ),
    "explain-difference": Verb(
        "say if greedy lanes part by a tie within rounding or by a bug",
        ".runs.cli:explain",
        ".runs.cli:add_difference",
    ),
    "sweep": Verb(
        "find the drafter and gamma to deploy, if any",
        ".measure.sweep.cli:main",
        ".measure.sweep.cli:add_arguments",
    ),
    "bench": Verb(
        "measure speed on several prompts",
        ".measure.bench.cli:main",
        ".measure.bench.cli:add_arguments",
    ),
    "pairs": Verb("list the named pairs by what fits this machine", ".pairs.cli:list_pairs"),
    "doctor": Verb(
        "check if two models can race, before any download",
        ".pairs.cli:doctor",
        ".pairs.cli:add_doctor",
    ),
    "guess": Verb(
        "what a draft would get right of a closed model's text",
        ".inspect.guess:main",
        ".inspect.guess:add_arguments",
    ),
    "prove": Verb(
        "test if a drafter or a verdict keeps the target's distribution",
        ".inspect.prove:main",
        ".inspect.prove:add_arguments",
    ),
    "train": Verb(
        "train a pair on books, or a better draft for a target",
        ".train.cli:main",
        ".train.cli:add_arguments",
    ),
    "variables": Verb("list the environment variables that it reads", ".cli:print_variables"),
}
