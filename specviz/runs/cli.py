"""The verbs of runs: `run`, `record`, `check` and `export`. Modules that import torch are imported
only where a model is needed, not for `--help` or to read a file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.console import escaped
from ..base.errors import PromptError, TraceError
from ..base.options import add_color, check_writable, colored
from ..core.events import Event, Header
from ..core.messages import TextPrompt, checked_messages
from ..core.settings import Settings
from ..core.several import beside, parsed_lane
from ..pairs.cli import add_pair, named_pair, raced
from ..pairs.prompts import messages_file
from ..pairs.spec import NO_DRAFT
from ..pairs.table import named_pairs
from .recording import FORMS, UNVERIFIED, file_summary, read_file
from .settings_options import add_settings, settings_from
from .terminal import print_race
from .trace import Trace

if TYPE_CHECKING:
    from ..core.pair import Pair
    from ..core.protocols import WatchedPair

BUILTIN_TARGET = "target"  # the name of its folder


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the options of `run` to a parser."""
    _add_race(parser)
    parser.add_argument("--out", metavar="FILE", help="also save the run (.json, .json.gz)")
    add_color(parser)


def add_record(parser: argparse.ArgumentParser) -> None:
    """Add the options of `record` to a parser."""
    _add_race(parser)
    parser.add_argument("--out", metavar="FILE", required=True, help=".json or .json.gz")


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check` to a parser."""
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+")
    add("--rerun", action="store_true", help="also run each one again here and compare")
    add_pair(parser)
    parser.set_defaults(pair=None)


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the options of `export` to a parser."""
    add = parser.add_argument
    add("file", metavar="FILE", help="a recording")
    add("--html", metavar="OUT", help="write a page that plays the run without a server")
    add("--embed", metavar="OUT", help="write a small player to embed in an article")
    add("--charts", metavar="OUT", help="write a page with all charts")
    add("--csv", metavar="DIR", help="write tokens.csv and rounds.csv to this folder")


def _add_race(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prompt", nargs="?", help="a text, or the user's last turn after --messages"
    )
    parser.add_argument(
        "--messages",
        metavar="FILE",
        help='earlier turns, a JSON list of {"role": ..., "content": ...}; without a prompt, its '
        "last turn is the question",
    )
    parser.add_argument("--system", metavar="TEXT", help="a system prompt before all turns")
    add_pair(parser)
    add_settings(parser)
    parser.add_argument(
        "--lane",
        action="append",
        default=[],
        metavar="CHANGES",
        help="also race a lane with these changes, such as drafter=ngram,gamma=3 (repeatable)",
    )


def _prompt(options: argparse.Namespace) -> TextPrompt:
    """The prompt that the options describe: a text, or turns. Raises `PromptError`."""
    turns: list[Any] = []
    if options.system is not None:
        turns.append({"role": "system", "content": options.system})
    if options.messages is not None:
        turns += messages_file(options.messages)
    if options.prompt is None and not turns:
        raise PromptError("there is no prompt: give one, or a file of turns with --messages.")
    if not turns:
        return str(options.prompt)
    if options.prompt is not None:
        turns.append({"role": "user", "content": options.prompt})
    return checked_messages(turns)


def _lanes(
    options: argparse.Namespace, pair: Pair | WatchedPair | None = None
) -> dict[str, Settings]:
    """The settings of all lanes; those without a drafter take the pair's."""
    settings = settings_from(options, pair)
    others = map(parsed_lane, options.lane)
    return beside(settings, others)


def _race(options: argparse.Namespace) -> Iterator[Event]:
    """Yield the events of the race that the options describe. Mistakes in the options are reported
    before the models are loaded."""
    _lanes(options)
    prompt = _prompt(options)
    if options.out:
        check_writable(options.out)
    from ..core.race import race
    from ..core.threads import limit_torch_threads

    limit_torch_threads()
    pair = raced(options)
    return race(pair, prompt, _lanes(options, pair))


def run(options: argparse.Namespace) -> None:
    """Race, and print the rounds and the figures."""
    trace = print_race(_race(options), color=colored(options))
    if options.out:
        trace.save(options.out)


def record(options: argparse.Namespace) -> None:
    """Race, and write the run to a file."""
    Trace.from_events(_race(options)).save(options.out)
    print(escaped(file_summary(options.out)))


def check(options: argparse.Namespace) -> int:
    """Print summaries of files; returns 1 if a second run of a file differs, else 0."""
    pairs: dict[str, Pair] = {}
    differs = False
    for path in options.files:
        print(escaped(file_summary(path)))
        if not options.rerun:
            continue
        from .rerun import rerun, rerun_lines

        trace, _ = read_file(path)
        name = options.pair or pair_named(trace.header)
        if name not in pairs:
            # The run's own arithmetic, unless the options ask for another.
            products = options.products or trace.header.target.get("products")
            options_of_pair = vars(options) | {"pair": name, "products": products}
            pairs[name] = named_pair(argparse.Namespace(**options_of_pair))
        comparison = rerun(trace, pairs[name])
        print(*map(escaped, rerun_lines(comparison)), sep="\n")
        differs = differs or not comparison.same
    print(UNVERIFIED)
    return int(differs)


def pair_named(header: Header) -> str:
    """The name of a header's pair. Raises `TraceError` if the header does not contain it."""
    target = str(header.target["name"])
    if "/" in target:
        return f"{target}+{_draft_named(header)}"
    if target == BUILTIN_TARGET:
        return "builtin"
    model = target.partition(",")[0]
    rows = []
    for row in named_pairs():
        if row.is_packed and row.target.name.endswith(f"/{model}"):
            rows.append(row)
    # Rows may share files: one runs the target in its stored format, another unpacks it.
    as_stored = "weights" in header.target
    rows.sort(key=lambda row: (row.target_dtype is None) != as_stored)
    if rows:
        return rows[0].name
    raise TraceError(
        "this recording's target is a file, a folder or a server: name the pair with --pair."
    )


def _draft_named(header: Header) -> str:
    """The header's first draft model, or first head that comes with this package, as the second
    part of a pair's name; "none" if there is none."""
    shipped = {}
    for row in named_pairs():
        if row.head is not None and row.head.shipped:
            short_name = row.head.name.rpartition("/")[2]
            shipped[short_name] = row.head.name_or_path
    for lane in header.speculative:
        draft = header.draft_of(lane) or {}
        name = str(draft.get("name"))
        if name in shipped:
            return shipped[name]
        if "/" in name:
            return name
    return NO_DRAFT


def export(options: argparse.Namespace) -> None:
    """Write a recording in the forms that the options name."""
    if not (options.html or options.embed or options.charts or options.csv):
        raise TraceError(
            "there is nothing to write: pass --html OUT, --embed OUT, --charts OUT or --csv DIR."
        )
    trace, _ = read_file(options.file)
    paths: dict[str, Path] = {}
    if options.html:
        paths["html"] = Path(options.html)
    if options.embed:
        paths["embed"] = Path(options.embed)
    if options.charts:
        paths["charts"] = Path(options.charts)
    if options.csv:
        paths["tokens"] = Path(options.csv) / "tokens.csv"
        paths["rounds"] = Path(options.csv) / "rounds.csv"
    # All texts before the first file: if one cannot be made, nothing is written.
    texts = {path: FORMS[form].write(trace) for form, path in paths.items()}
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise TraceError(f"{path} cannot be written: {error.strerror}.") from error
        print(path)
