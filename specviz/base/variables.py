"""The environment variables that configure the program, all in one table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .environment import FORM, KERNELS, THREADS, ValueType, Variable, number, one_of

_SERVED = re.compile(r"https?://[^\s@#]+#[^+|]+(\+.+|\s*\|\s*https?://[^\s@#]+#[^+|]+)?")
_ORIGIN = re.compile(r"https?://([\w.-]+|\[[\da-f:]+\])(:\d{1,5})?")


def _switch(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("0", "1", "false", "true"):
        raise ValueError
    return word in ("1", "true")


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _origins(text: str) -> tuple[str, ...]:
    origins = tuple(name.lower().rstrip("/") for name in _names(text))
    if not all(map(_ORIGIN.fullmatch, origins)):
        raise ValueError
    return origins


def _sign_in(text: str) -> tuple[str, str]:
    name, _, password = text.partition(":")
    if not name or not password:
        raise ValueError
    return name, password


def _folder(text: str) -> Path:
    try:
        folder = Path(text).expanduser()
    except RuntimeError as error:  # the user is unknown
        raise ValueError from error
    if not folder.is_absolute():
        raise ValueError
    return folder


def _served(text: str) -> str:
    if not _SERVED.fullmatch(text.strip()):
        raise ValueError
    return text.strip()


def _whether(name: str, meaning: str, default: bool = False) -> Variable[bool]:
    """A variable that is 1 or 0."""
    return Variable(name, meaning, ValueType(_switch, "1 or 0"), default)


def _limit(name: str, seconds: float, meaning: str) -> Variable[float]:
    """A variable that is a number of seconds."""
    return Variable(name, meaning, number(float, 0.1), seconds)


PAIRS: Variable[tuple[str, ...]] = Variable(
    "SPECVIZ_PAIRS",
    "The named pairs that visitors may choose besides the built-in pair; on ZeroGPU, the pairs "
    "to load.",
    ValueType(_names, "names that `python -m specviz pairs` lists, separated by commas"),
    (),
    "all; on ZeroGPU none",
)
PAIR: Variable[str | None] = Variable(
    "SPECVIZ_PAIR",
    "The pair that the page starts with.",
    ValueType(str, "a name that `load_pair` accepts; served is the pair of SPECVIZ_REMOTE"),
    None,
    "the first of qwen2.5-coder-1.5b, smollm2-135m and builtin whose files are on the machine",
)
ANY_MODEL = _whether(
    "SPECVIZ_ANY_MODEL",
    "Whether visitors may load any model of the hub, and any folder or GGUF file on the machine.",
)
ANY_WITH_TOKEN = _whether(
    "SPECVIZ_ANY_WITH_TOKEN",
    "Whether the models that visitors name are loaded with `HF_TOKEN`: visitors can then use "
    "every private model that the token can read.",
)
AUTH: Variable[tuple[str, str] | None] = Variable(
    "SPECVIZ_AUTH",
    "The name and the password that visitors must enter.",
    ValueType(_sign_in, "NAME:PASSWORD, neither part empty"),
    None,
    secret=True,
)
ORIGINS: Variable[tuple[str, ...]] = Variable(
    "SPECVIZ_ORIGINS",
    "The page's own public origin, if it has a domain name, and other sites that may embed the "
    "page and use its endpoints in a visitor's browser.",
    ValueType(_origins, "origins such as https://example.org, separated by commas"),
    (),
)
REMOTE: Variable[str | None] = Variable(
    "SPECVIZ_REMOTE",
    "A pair whose target is on a server, or a server with its own speculation: visitors may "
    "choose it, but never see its address.",
    ValueType(
        _served,
        "http://HOST:PORT/v1#MODEL+DRAFT, or http://HOST:PORT/v1#MODEL for a watched server",
    ),
    None,
    secret=True,
)
REMOTE_KEY: Variable[str | None] = Variable(
    "SPECVIZ_REMOTE_KEY",
    "The key for the target's server, sent only to the servers in SPECVIZ_REMOTE or, if that is "
    "not set, to those named on the command line.",
    ValueType(str, "the key that the server expects"),
    None,
    secret=True,
)
CACHE: Variable[Path | None] = Variable(
    "SPECVIZ_CACHE",
    "The folder for unpacked GGUF files and fetched models.",
    ValueType(_folder, "the absolute path of a folder"),
    None,
    "`~/.cache/specviz`",
)
MODELS: Variable[Path | None] = Variable(
    "SPECVIZ_MODELS",
    "The folder of the named pairs' GGUF files, where `python -m specviz fetch` puts them.",
    ValueType(_folder, "the absolute path of a folder"),
    None,
    "`models` in the folder of SPECVIZ_CACHE",
)
FETCH: Variable[bool | None] = Variable(
    "SPECVIZ_FETCH",
    "Whether visitors may have the page fetch the published pair with one click.",
    ValueType(_switch, "1 or 0"),
    None,
    "1 for visitors on the machine itself unless something indicates that the page is public, "
    "else 0",
)
LOCAL_MODELS: Variable[bool | None] = Variable(
    "SPECVIZ_LOCAL_MODELS",
    "Whether visitors may see and choose the models that the hub's cache, Ollama, LM Studio and "
    "llama.cpp keep on the machine.",
    ValueType(_switch, "1 or 0"),
    None,
    "1 for visitors on the machine itself unless something indicates that the page is public, "
    "else 0",
)
MCP = _whether(
    "SPECVIZ_MCP",
    "Whether the endpoints are tools for MCP clients, if `requirements-mcp.txt` is installed.",
)
MAX_SECONDS = _limit("SPECVIZ_MOST_SECONDS", 120.0, "The time limit of a run, in seconds.")
MAX_WAITING = Variable(
    "SPECVIZ_MOST_WAITING",
    "The maximum number of runs and experiments that wait in the queue behind the current one.",
    number(int, 0),
    16,
)
MAX_PER_CLIENT = Variable(
    "SPECVIZ_MOST_PER_CLIENT",
    "The maximum number of runs and experiments of one address that wait in the queue.",
    number(int, 1),
    8,
)
SWEEP = _whether(
    "SPECVIZ_SWEEP",
    "Whether visitors may sweep in the view Choose; on ZeroGPU they never may.",
    default=True,
)
SWEEP_SECONDS: Variable[int | None] = Variable(
    "SPECVIZ_SWEEP_SECONDS",
    "The maximum decoding time of one sweep, in seconds.",
    number(int, 1),
    None,
    "600; on a Space 120",
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
    "SPECVIZ_DRAIN_SECONDS", 6.0, "Seconds after SIGTERM in which the current run may finish."
)
PLUGINS: Variable[tuple[str, ...]] = Variable(
    "SPECVIZ_PLUGINS",
    "Modules to import at startup that register your own drafters and verdicts.",
    ValueType(_names, "module names, separated by commas"),
    (),
)
LOG = Variable(
    "SPECVIZ_LOG",
    "The format of the log's lines, including those of libraries.",
    one_of("text", "json"),
    "text",
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
    MODELS,
    FETCH,
    LOCAL_MODELS,
    MCP,
    MAX_SECONDS,
    MAX_WAITING,
    MAX_PER_CLIENT,
    SWEEP,
    SWEEP_SECONDS,
    STOP_SECONDS,
    SILENT_SECONDS,
    DRAIN_SECONDS,
    THREADS,
    FORM,
    KERNELS,
    PLUGINS,
    LOG,
)
"""All variables, in the order in which documents list them."""


def check_variables() -> None:
    """Read every variable once, so that a wrong one fails at the start and not in a visitor's run.
    Raises `SettingsError`."""
    for variable in VARIABLES:
        variable.read()


def variables_table() -> str:
    """All variables as a table in Markdown, without a final line end."""
    rows = ["| Variable | Meaning | Allowed | Default |", "|---|---|---|---|"]
    for variable in VARIABLES:
        default = variable.default or "none"
        if isinstance(variable.default, (int, float)):
            default = f"{variable.default:g}"  # a switch is 1 or 0
        cells = (
            f"`{variable.name}`",
            variable.meaning,
            variable.type.allowed,
            variable.unset or default,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def print_variables(_: object) -> None:
    """Print the table, as the verb of the command line."""
    print(variables_table())
