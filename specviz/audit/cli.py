"""`python -m specviz audit`: three verdicts on a server, as text, JSON and one HTML file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from ..base.console import escaped, print_error
from ..base.errors import SettingsError
from ..base.options import check_writable, listed, real, whole
from ..runs.trace import write_atomically
from .html import SIGNS, audit_html
from .report import QUESTIONS, AuditReport
from .sampled import TEMPERATURE

WRITERS: dict[str, Callable[[AuditReport], str]] = {
    ".html": audit_html,
    ".json": AuditReport.to_json,
}
"""The writer of the report, by the suffix of a file."""
EPILOG = (
    "Exit status: 0 if every answer is yes, 1 if one is no, 3 if none is no and one cannot be "
    "told, 2 for a mistake or a server that cannot be audited, 130 after Ctrl-C."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `audit` to a parser."""
    parser.epilog = EPILOG
    add = parser.add_argument
    add("server", metavar="URL#MODEL", help="a server that speculates: http://HOST:8000/v1#MODEL")
    add("--baseline", metavar="URL#MODEL", help="the same target, served without speculation")
    add("--draft", metavar="MODEL", help="a draft, for the commands that are recommended")
    add(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="a file of prompts: text with one per line, JSON, JSONL or CSV",
    )
    add(
        "--minutes", type=real(0.05, 1440), default=5.0, help="time to measure; default %(default)g"
    )
    add(
        "--only",
        type=listed(str),
        default=tuple(QUESTIONS),
        metavar="QUESTIONS",
        help=f"some of {','.join(QUESTIONS)}; default: all",
    )
    add(
        "--at-once",
        type=whole(1, 1024),
        default=4,
        help="the most requests at once; default %(default)s",
    )
    add("--context", type=whole(8, 10**7), default=2048, help="the longest prompt, in tokens")
    add(
        "--tokens", type=whole(5, 4096), default=48, help="length of each text; default %(default)s"
    )
    add("--temperature", type=real(0.1, 2), default=TEMPERATURE, help="default %(default)g")
    add("--out", metavar="REPORT", help="also write REPORT.html and REPORT.json, or one of them")


def main(options: argparse.Namespace) -> int:
    """Audit, print the report, write it to files; returns the exit status. Raises
    `SpecvizError`."""
    from .auditing import audit_server

    paths: list[Path] = []
    if options.out is not None:
        paths = checked_paths(options.out)
    report = audit_server(
        options.server,
        baseline=options.baseline,
        on_progress=lambda sentence: print(escaped(sentence), flush=True),
        draft=options.draft,
        prompts=options.prompts,
        minutes=options.minutes,
        questions=options.only,
        at_once=options.at_once,
        context=options.context,
        tokens=options.tokens,
        temperature=options.temperature,
    )
    print()
    for line in report_lines(report):
        print(escaped(line, lines=True))
    for path in paths:
        text = WRITERS[path.suffix](report)
        write_atomically(path, text.encode("utf-8"))
        print_error(f"wrote {path}")
    return report.exit_status


def checked_paths(out: str) -> list[Path]:
    """The files of --out. Raises `SpecvizError` if one could not be written."""
    path = Path(out)
    if path.suffix and path.suffix not in WRITERS:
        raise SettingsError(
            f"--out is {out}: use a name that ends in .html or .json, or one "
            "without a suffix for both."
        )
    paths = [path]
    if not path.suffix:
        paths = [path.with_suffix(suffix) for suffix in WRITERS]
    for file in paths:
        check_writable(file)
    return paths


def report_lines(report: AuditReport) -> Iterator[str]:
    """The report as text."""
    yield f"{report.model} on {report.deployment}"
    for verdict in report.verdicts:
        yield ""
        yield f"{SIGNS[verdict.answer]} {QUESTIONS[verdict.question]} {verdict.sentence}"
        for fact in verdict.evidence:
            yield f"    {fact.source}: {fact.sentence}"
        if verdict.doubt:
            yield f"    doubt: {verdict.doubt}"
    if report.advice:
        yield ""
        yield "What would help"
    for advice in report.advice:
        yield f"  {advice.sentence}"
        if advice.engine:
            yield f"    {advice.engine}"
        yield from (f"      {line}" for line in advice.lines.splitlines())
    yield ""
    yield from report.notes
    if report.stopped:
        yield "The audit was stopped: these are the measurements so far."
    yield f"{report.requests} requests in {report.seconds:.0f} s, specviz {report.version}"
