"""`python -m specviz guess`: what a draft would have got right of a text of another model."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .decoding.guesses import draft_of, guesses
from .environment import BUILTIN, REMOTE_KEY
from .errors import PromptError, SpecvizError
from .inspect.guesses import NAME, WHY, Guesses, guess_lines
from .models.load import load_pair
from .models.pair import Pair
from .models.progress import terminal_watcher
from .pairs.spec import NO_DRAFT, is_row
from .remote.closed import Written, split_closed, written_by
from .remote.wire import Server
from .settings import Settings

GAMMAS = (1, 2, 3, 5, 8, 16)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `guess` to a parser."""
    add = parser.add_argument
    draft = "a hub id or a folder, or the name of a pair whose draft guesses; default %(default)s"
    add("--draft", default=BUILTIN, metavar="ID", help=draft)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", metavar="FILE", help="what the model wrote; - is the input")
    api = "https://HOST/v1#MODEL: an API of OpenAI's protocol; its key in SPECVIZ_REMOTE_KEY"
    source.add_argument("--api", metavar="ADDRESS", help=api)
    add("--prompt", default="", help="what the text answers")
    add("--continues", action="store_true", help="the text goes on from the prompt (completions)")
    add("--length", type=int, default=256, metavar="N", help="tokens to ask for, default 256")
    add("--gamma", type=int, default=Settings().gamma, help="of the rounds that are printed")
    add("--color", choices=("auto", "always", "never"), default="auto")
    add("--json", action="store_true", help="print places and rounds as JSON")


def main(options: argparse.Namespace) -> None:
    """Compare a text with the draft's guesses and print both. Raises `SpecvizError`."""
    for name in ("length", "gamma"):
        if getattr(options, name) < 1:
            raise SpecvizError(f"--{name} is {getattr(options, name)}: use 1 or more.")
    written = _asked(options) if options.api else Written(_text(options.text), None, 0.0)
    draft = _draft(options.draft)
    steps = guesses(draft, written.text, options.prompt, continues=options.continues)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: Guesses = done.value
            break
    if options.json:
        print(json.dumps(_as_dict(found, written), indent=1))
        return
    tty = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    color = options.color == "always" or (options.color == "auto" and tty)
    print(f"{NAME}. {WHY}\n", *guess_lines(found, options.gamma, GAMMAS, color=color), sep="\n")
    if written.counted:
        print(f"The API counted {written.counted} tokens of its own.")


def _asked(options: argparse.Namespace) -> Written:
    if not options.prompt.strip():
        raise PromptError("an API needs something to answer: give it with --prompt.")
    url, model = split_closed(options.api)
    server = Server(url, REMOTE_KEY.read())
    return written_by(server, model, options.prompt, options.length, continues=options.continues)


def _text(file: str) -> str:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise SpecvizError(f"{file} cannot be read as a text in UTF-8.") from error
    return text.rstrip("\n")  # which editors add


def _draft(name: str) -> Pair:
    watcher = terminal_watcher()
    if is_row(name) or "+" in name:
        return draft_of(load_pair(name, on_progress=watcher))
    return load_pair(f"{name}+{NO_DRAFT}", on_progress=watcher)


def _as_dict(found: Guesses, written: Written) -> dict[str, Any]:
    return {
        "name": NAME,
        "draft": found.draft,
        "counted_by_the_api": written.counted,
        "before": found.before,
        "left_out": found.left_out,
        "places": [one._asdict() for one in found.places],
        "would_be": dict(_by_gamma(found)),
    }


def _by_gamma(found: Guesses) -> Iterator[tuple[int, dict[str, Any]]]:
    for gamma in GAMMAS:
        its = found.would_be(gamma)
        yield gamma, {"alpha": its.alpha, "tau": its.tau, **its._asdict()}
