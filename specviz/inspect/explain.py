"""The verb `explain-difference`: explain why two greedy lanes diverge."""

from __future__ import annotations

import argparse

from ..pairs.cli import add_pair, named_pair
from ..runs.recording import read_file
from .parting import difference_lines, parting_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `explain-difference` to a parser."""
    parser.add_argument("file", metavar="FILE", help="a recording")
    parser.add_argument("--of", metavar="LANE", help="the lane with drafts; default: the first")
    add_pair(parser)


def main(options: argparse.Namespace) -> int:
    """Print why two greedy lanes diverge; returns 1 if it is a bug, else 0."""
    trace, _ = read_file(options.file)
    parting = parting_of(trace, options.of)
    if parting is None:
        print("Both lanes wrote the same text: there is no difference to explain.")
        return 0
    from .difference import examined

    *_, difference = examined(named_pair(options), parting)
    assert not isinstance(difference, str)
    print(*difference_lines(difference), sep="\n")
    return int(difference.verdict == "bug")
