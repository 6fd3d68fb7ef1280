"""The verbs of `python -m specviz`: the page, races, recordings, benchmarks and training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .base.console import checked_output, degrade_signs, escaped, print_error, writing_fault
from .base.environment import collector_paused
from .base.errors import SpecvizError
from .base.options import Parser


class Command(NamedTuple):
    """The code of a verb. run: takes the parsed options and returns the exit status, None for 0.
    add_options: adds them to a parser; None if there are none."""

    run: Callable[[Any], int | None]
    add_options: Callable[[Any], None] | None = None


class Verb(NamedTuple):
    """A verb of the command line. help: its description in a line. command: imports its code, so
    that a command line imports only the code of its own verb."""

    help: str
    command: Callable[[], Command]


def _page() -> Command:
    from .page.serve import add_arguments, serve_page

    return Command(serve_page, add_arguments)


def _run() -> Command:
    from .runs.cli import add_run, run

    return Command(run, add_run)


def _record() -> Command:
    from .runs.cli import add_record, record

    return Command(record, add_record)


def _check() -> Command:
    from .runs.cli import add_check, check

    return Command(check, add_check)


def _export() -> Command:
    from .runs.cli import add_export, export

    return Command(export, add_export)


def _explain_difference() -> Command:
    from .inspect.explain import add_arguments, main

    return Command(main, add_arguments)


def _sweep() -> Command:
    from .measure.sweep.cli import add_arguments, main

    return Command(main, add_arguments)


def _bench() -> Command:
    from .measure.bench.cli import add_arguments, main

    return Command(main, add_arguments)


def _pairs() -> Command:
    from .pairs.cli import add_list, list_pairs

    return Command(list_pairs, add_list)


def _fetch() -> Command:
    from .pairs.cli import add_fetch, fetch

    return Command(fetch, add_fetch)


def _doctor() -> Command:
    from .pairs.cli import add_doctor, doctor

    return Command(doctor, add_doctor)


def _guess() -> Command:
    from .inspect.guess import add_arguments, main

    return Command(main, add_arguments)


def _prove() -> Command:
    from .inspect.prove import add_arguments, main

    return Command(main, add_arguments)


def _audit() -> Command:
    from .audit.cli import add_arguments, main

    return Command(main, add_arguments)


def _train() -> Command:
    from .train.cli import add_arguments, main

    return Command(main, add_arguments)


def _variables() -> Command:
    from .base.variables import print_variables

    return Command(print_variables)


VERBS = {
    "page": Verb("serve the page, by default on 127.0.0.1:7860", _page),
    "run": Verb("race on one prompt in the terminal", _run),
    "record": Verb("race on one prompt and save the run to a file", _record),
    "check": Verb("check recordings as strictly as the page does", _check),
    "export": Verb("convert a recording to a page or to tables", _export),
    "explain-difference": Verb(
        "explain why greedy lanes differ: a tie within rounding or a bug", _explain_difference
    ),
    "sweep": Verb("find the drafter and gamma to deploy, if any", _sweep),
    "bench": Verb("measure speed on several prompts", _bench),
    "pairs": Verb(
        "list the named pairs that fit here, and pairs of the models on this machine", _pairs
    ),
    "fetch": Verb("download a named pair", _fetch),
    "doctor": Verb("check whether two models can race, before any download", _doctor),
    "guess": Verb("count the tokens of a closed model's text that a draft would guess", _guess),
    "prove": Verb("test whether a drafter or a verdict keeps the target's distribution", _prove),
    "audit": Verb(
        "check whether a server speculates, whether that pays and whether it is lossless", _audit
    ),
    "train": Verb("train a head on a target, or a better draft for it", _train),
    "variables": Verb("list the environment variables that specviz reads", _variables),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status. A user's mistake is one line on stderr."""
    degrade_signs()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with checked_output():
            options = parser_of(words).parse_args(words)
            with collector_paused():
                command = VERBS[options.verb].command()
            return command.run(options) or 0
    except SpecvizError as error:
        print_error(f"specviz: {escaped(str(error))}")
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        return 130
    except OSError as error:
        sentence = writing_fault(error)
        if sentence is None:
            raise
        print_error(f"specviz: {escaped(sentence)}")
        return 2


def parser_of(arguments: Sequence[str]) -> Parser:
    """Build the parser of a command line, with all verbs and the options of the used one."""
    parser = Parser(prog="specviz", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB", dest="verb")
    for name, verb in VERBS.items():
        verb_parser = verbs.add_parser(name, help=verb.help)
        if name not in arguments[:1]:
            continue
        with collector_paused():
            add_options = verb.command().add_options
        if add_options is not None:
            add_options(verb_parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
