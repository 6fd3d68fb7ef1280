"""The variables that whoever runs the program may set: all of them, in one table."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from .environment import FORM, THREADS, Variable, from_one, one_of, whole_number

_SERVED = re.compile(r"https?://[^\s@#]+#[^+|]+(\+.+|\s*\|\s*https?://[^\s@#]+#[^+|]+)?")
_ORIGIN = re.compile(r"https?://([\w.-]+|\[[\da-f:]+\])(:\d{1,5})?")


def _seconds(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0.1):
        raise ValueError
    return value


def _switch(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("0", "1", "false", "true"):
        raise ValueError
    return word in ("1", "true")


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _origins(text: str) -> tuple[str, ...]:
    found = tuple(name.lower().rstrip("/") for name in _names(text))
    if not all(_ORIGIN.fullmatch(one) for one in found):
        raise ValueError
    return found


def _sign_in(text: str) -> tuple[str, str]:
    name, _, password = text.partition(":")
    if not name or not password:
        raise ValueError
    return name, password


def _folder(text: str) -> Path:
    try:
        folder = Path(text).expanduser()
    except RuntimeError as error:  # of no known user
        raise ValueError from error
    if not folder.is_absolute():
        raise ValueError
    return folder


def _served(text: str) -> str:
    if not _SERVED.fullmatch(text.strip()):
        raise ValueError
    return text.strip()


def _limit(name: str, seconds: float, meaning: str) -> Variable[float]:
    return Variable(name, _seconds, seconds, f"{seconds:g}", "a number from 0.1 on", meaning)


def _off(name: str, meaning: str) -> Variable[bool]:
    return Variable(name, _switch, False, "0", "1 or 0", meaning)


PAIRS: Variable[tuple[str, ...]] = Variable(
    "SPECVIZ_PAIRS",
    _names,
    (),
    "all; on ZeroGPU none",
    "names that `python -m specviz pairs` lists, separated by commas",
    "The named pairs that visitors may choose beside the built-in pair; on ZeroGPU, the pairs that "
    "are loaded.",
)
PAIR: Variable[str | None] = Variable(
    "SPECVIZ_PAIR",
    str,
    None,
    "smollm2-135m where its file is at hand, else builtin",
    "a name that `load_pair` takes; the pair of SPECVIZ_REMOTE is named served",
    "The pair that the page starts with.",
)
ANY_MODEL = _off(
    "SPECVIZ_ANY_MODEL",
    "Whether visitors may name any model of the hub and any folder of the machine.",
)
ANY_WITH_TOKEN = _off(
    "SPECVIZ_ANY_WITH_TOKEN",
    "Whether models that visitors name are read with `HF_TOKEN`: then visitors can use every "
    "private model that it opens.",
)
AUTH: Variable[tuple[str, str] | None] = Variable(
    "SPECVIZ_AUTH",
    _sign_in,
    None,
    "none",
    "NAME:PASSWORD, neither of them empty",
    "The name and the password that visitors must enter.",
    secret=True,
)
ORIGINS: Variable[tuple[str, ...]] = Variable(
    "SPECVIZ_ORIGINS",
    _origins,
    (),
    "none",
    "origins such as https://example.org, separated by commas",
    "The page's own public origin, if it has a domain name, and other sites that may frame the "
    "page and use its endpoints in a visitor's browser.",
)
REMOTE: Variable[str | None] = Variable(
    "SPECVIZ_REMOTE",
    _served,
    None,
    "none",
    "http://HOST:PORT/v1#MODEL+DRAFT, or http://HOST:PORT/v1#MODEL for a server that is watched",
    "A pair whose target is on a server, or a server that speculates by itself: visitors may "
    "choose it, and never see its address.",
    secret=True,
)
REMOTE_KEY: Variable[str | None] = Variable(
    "SPECVIZ_REMOTE_KEY",
    str,
    None,
    "none",
    "the key that the server wants",
    "The key of a server that holds the target: the one in SPECVIZ_REMOTE and no other, or, where "
    "that is not set, the one that is named on the command line.",
    secret=True,
)
CACHE: Variable[Path | None] = Variable(
    "SPECVIZ_CACHE",
    _folder,
    None,
    "the platform's folder for caches",
    "a folder's whole path",
    "Where GGUF files are kept unpacked.",
)
MCP = _off(
    "SPECVIZ_MCP",
    "Whether the endpoints are tools for MCP clients, if `requirements-mcp.txt` is installed.",
)
MOST_SECONDS = _limit("SPECVIZ_MOST_SECONDS", 120.0, "The time limit of a run, in seconds.")
MOST_WAITING = Variable(
    "SPECVIZ_MOST_WAITING",
    whole_number,
    16,
    "16",
    "a whole number from 0 on",
    "The maximum number of runs and experiments that wait in the queue behind the current one.",
)
MOST_PER_CLIENT = Variable(
    "SPECVIZ_MOST_PER_CLIENT",
    from_one,
    8,
    "8",
    "a whole number from 1 on",
    "The maximum number of runs and experiments of one address that wait in the queue.",
)
SWEEP: Variable[bool] = Variable(
    "SPECVIZ_SWEEP",
    _switch,
    True,
    "1",
    "1 or 0",
    "Whether visitors may sweep in the view Choose; no effect on ZeroGPU, where they may not.",
)
SWEEP_SECONDS: Variable[int | None] = Variable(
    "SPECVIZ_SWEEP_SECONDS",
    from_one,
    None,
    "600; on a Space 120",
    "a whole number from 1 on",
    "The maximum decoding time of one sweep, in seconds.",
)
STOP_SECONDS = _limit(
    "SPECVIZ_STOP_SECONDS",
    5.0,
    "Seconds after Stop until an unresponsive model process is replaced.",
)
SILENT_SECONDS = _limit(
    "SPECVIZ_SILENT_SECONDS",
    300.0,
    "Seconds without any result until the model process is replaced.",
)
DRAIN_SECONDS = _limit(
    "SPECVIZ_DRAIN_SECONDS",
    6.0,
    "Seconds after SIGTERM that the current run has to end by itself.",
)
COMPILE = _off("SPECVIZ_COMPILE", "Whether the static form compiles layers first.")
PLUGINS: Variable[tuple[str, ...]] = Variable(
    "SPECVIZ_PLUGINS",
    _names,
    (),
    "none",
    "names of modules, divided by commas",
    "Modules to import at the start, which register drafters and verdicts of your own.",
)
LOG = Variable(
    "SPECVIZ_LOG",
    one_of("text", "json"),
    "text",
    "text",
    "one of text, json",
    "The form of the log's lines, also of those that libraries write.",
)
METRICS = _off(
    "SPECVIZ_METRICS",
    "Whether /metrics has counts and times for Prometheus.",
)

VARIABLES: tuple[Variable[Any], ...] = (
    PAIRS,
    PAIR,
    ANY_MODEL,
    ANY_WITH_TOKEN,
    AUTH,
    ORIGINS,
    REMOTE,
    REMOTE_KEY,
    CACHE,
    MCP,
    MOST_SECONDS,
    MOST_WAITING,
    MOST_PER_CLIENT,
    SWEEP,
    SWEEP_SECONDS,
    STOP_SECONDS,
    SILENT_SECONDS,
    DRAIN_SECONDS,
    THREADS,
    FORM,
    COMPILE,
    PLUGINS,
    LOG,
    METRICS,
)
"""All of them, in the order in which documents list them."""


def check_variables() -> None:
    """Read every variable once, so that a wrong one ends a start and not a visitor's run. Raises
    `SettingsError`."""
    for variable in VARIABLES:
        variable.read()


def variables_table() -> str:
    """All variables as a table in Markdown, without a line end at its end."""
    rows = [f"| `{one.name}` | {one.meaning} | {one.allowed} | {one.unset} |" for one in VARIABLES]
    return "\n".join(["| Variable | Meaning | Allowed | Default |", "|---|---|---|---|", *rows])
