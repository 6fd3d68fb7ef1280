"""Parse a pair's name, once. The grammar is in docs/pairs.md. This module imports no torch.

Each form of a name has its own type, which `load.load_any` and `doctor.examine_pair` match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import urlsplit

from ..base.environment import BUILTIN, SERVED
from ..base.errors import PairError
from ..base.variables import REMOTE, REMOTE_KEY
from ..files.local_models import is_stored
from ..files.local_paths import HUB_ID, local_path

NO_DRAFT = "none"
"""The draft's name in a pair without a draft model: "TARGET+none"."""

MAX_NAME = 300  # characters of a name that a visitor gives
MAX_SHOWN = 100  # of a name in a sentence
SHOWN = 4  # names of the table in a sentence
ADDRESS = "http://HOST:PORT/v1#MODEL"
NAMING = (
    f"use {ADDRESS}+DRAFT for a target on a server, where MODEL is its name on the server and "
    f"DRAFT is a hub id, a folder or a GGUF file; use {ADDRESS} to watch a server, or {ADDRESS} "
    "| http://OTHER:PORT/v1#MODEL with a second server as its baseline"
)

UNNAMED = f"this does not name a model on a server: {NAMING}."
UNREADABLE = "The pair's name is not text: use a name such as 'builtin'."
NOT_OFFERED = "This pair is not offered here: choose one from the list."
ONLY_OPERATOR = "Only the operator can add servers: use models of the hub, folders or GGUF files."
# Names that would open a connection if used as a path: an address, or another machine's folder.
_ELSEWHERE = re.compile(r"://|^(//|\\\\)")
_SERVER = re.compile(r"https?://", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*\|\s*(?=https?://)", re.IGNORECASE)


@dataclass(frozen=True)
class NamedSpec:
    """A row of the table of pairs; "builtin" is one of them."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ModelsSpec:
    """Models of the hub or of this machine.

    target: a hub id, a folder, a GGUF file or a name of `local_models`. draft: a model named the
    same way, or a head, or `OWN_LAYERS`; None if there is none. Raises `PairError` for an address.
    """

    target: str
    draft: str | None

    def __post_init__(self) -> None:
        for name in (self.target, self.draft or ""):
            if _ELSEWHERE.search(name):
                raise PairError(
                    f"{name[:MAX_SHOWN]!r} is neither a model of the hub nor a folder here: "
                    f"{NAMING}."
                )

    def __str__(self) -> str:
        return f"{self.target}+{self.draft or NO_DRAFT}"


@dataclass(frozen=True)
class OperatorSpec:
    """The pair of SPECVIZ_REMOTE, whose address only the operator knows (`operator_spec`)."""

    def __str__(self) -> str:
        return SERVED


@dataclass(frozen=True)
class Address:
    """A model on a server of OpenAI's protocol. url: "http://HOST:PORT/v1"; no message shows it.

    Raises `PairError` if it is not a valid address.
    """

    url: str = field(repr=False)
    model: str

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_valid_port = parts.port is None or parts.port >= 0
            is_address = bool(parts.hostname) and is_valid_port
        except ValueError:
            is_address = False
        after_scheme = self.url.partition("://")[2]
        host = after_scheme.partition("/")[0]
        if "@" in host:
            raise PairError(
                f"an address must not contain a password: set {REMOTE_KEY.name} instead."
            )
        if not is_address or not self.model or re.search(r"[\s#]", self.url):
            raise PairError(UNNAMED)

    def __str__(self) -> str:
        return f"{self.url}#{self.model}"


@dataclass(frozen=True)
class ServedSpec:
    """A target on a server, with a draft that is loaded here: a hub id or a folder."""

    target: Address
    draft: str

    def __post_init__(self) -> None:
        ModelsSpec(self.draft, None)

    def __str__(self) -> str:
        return f"{self.target}+{self.draft}"


@dataclass(frozen=True)
class WatchedSpec:
    """A server that speculates by itself, and perhaps one that holds the target alone."""

    engine: Address
    alone: Address | None = None

    def __str__(self) -> str:
        if self.alone is None:
            return str(self.engine)
        return f"{self.engine} | {self.alone}"


VisitorSpec: TypeAlias = NamedSpec | ModelsSpec | OperatorSpec
"""Pairs that a visitor of a page may name: none can hold a server's address."""

ServerSpec: TypeAlias = ServedSpec | WatchedSpec
PairSpec: TypeAlias = VisitorSpec | ServerSpec


def parse_pair(name: str) -> PairSpec:
    """Parse a pair's name. Raises `PairError` if it names no pair. A folder whose name contains a
    "+" is looked for on this machine; nothing else is read.
    """
    if not isinstance(name, str):
        raise PairError(f"the pair's name is {name!r}: use a string, such as 'builtin'.")
    name = name.strip()
    if name == SERVED:
        return OperatorSpec()
    if _SERVER.match(name):
        return _on_servers(name)
    if is_row(name):
        return NamedSpec(name)
    splits = _splits(name)
    if splits:
        target, draft = splits[0]
        if draft == NO_DRAFT:
            return ModelsSpec(target, None)
        return ModelsSpec(target, draft)
    from .table import named_pairs

    first_rows = named_pairs()[1 : SHOWN + 1]
    examples = ", ".join(row.name for row in first_rows)
    raise PairError(
        f"{name[:MAX_SHOWN]!r} does not name a pair: use 'builtin', 'target-id+draft-id', "
        f"'target-id+none' for a target without a draft model, or a named pair such as {examples}."
    )


def _splits(name: str) -> list[tuple[str, str]]:
    """Split a name into target and draft at each plus. The name of a folder may contain a plus: a
    split with a local target comes first."""
    splits = []
    for plus in re.finditer(r"\+", name):
        target = name[: plus.start()].strip()
        draft = name[plus.end() :].strip()
        if target and draft:
            splits.append((target, draft))
    splits.sort(key=lambda split: local_path(split[0]) is None)
    return splits


def visitor_spec(name: object, *, any_model: bool, stored_models: bool = False) -> VisitorSpec:
    """Parse the pair that a visitor of a page, or a program that calls it, has named.

    any_model: whether visitors may name models that are not in the table. stored_models: whether
    this visitor may name models that other programs keep on this machine. The caller checks whether
    a row of the table is offered. Raises `PairError`.
    """
    if not isinstance(name, str) or len(name) > MAX_NAME:
        raise PairError(UNREADABLE)
    # An address is refused without saying whether it would be a valid one.
    if _ELSEWHERE.search(name):
        if any_model:
            raise PairError(ONLY_OPERATOR)
        raise PairError(NOT_OFFERED)
    try:
        spec = parse_pair(name)
    except PairError:
        if any_model:
            raise
        raise PairError(NOT_OFFERED) from None
    if isinstance(spec, ServedSpec | WatchedSpec):
        raise PairError(ONLY_OPERATOR)
    if isinstance(spec, OperatorSpec) and REMOTE.read() is None:
        raise PairError(NOT_OFFERED)
    if isinstance(spec, ModelsSpec):
        if not any_model and not (stored_models and _is_stored_pair(spec)):
            raise PairError(NOT_OFFERED)
        _check_models(spec)
    return spec


def _check_models(spec: ModelsSpec) -> None:
    _check_model(spec.target)
    if spec.draft:
        _check_model(spec.draft)


def _check_model(name: str) -> None:
    """Raise `PairError` unless a name is a hub id, or a folder or file of this machine."""
    if not HUB_ID.fullmatch(name) and local_path(name) is None:
        raise PairError(
            f"{name[:MAX_SHOWN]!r} is not a model that can be used here: use a hub id such as "
            "owner/model, or a folder or GGUF file on the server's machine."
        )


def _is_stored_pair(spec: ModelsSpec) -> bool:
    """Whether all of its models are in stores of this machine, so that nothing is fetched."""
    return is_stored(spec.target) and (spec.draft is None or is_stored(spec.draft))


def operator_spec() -> ServerSpec:
    """Parse the pair in SPECVIZ_REMOTE. Raises `PairError` if it names none."""
    name = REMOTE.read()
    if name is None:
        raise PairError(f"there is no target on a server here: set {REMOTE.name}.")
    return _on_servers(name)


def address_of(url: str | None, pair: str, alone: str | None = None) -> str:
    """Build a pair's full name: `pair` itself, or with a server at `url` the name of "MODEL+DRAFT",
    or of "MODEL" to watch it.

    url: may itself hold the models after a "#". alone: the address of a second server, which holds
    a watched server's model. Raises `PairError` for parts that do not go together.
    """
    name = pair
    if url is not None:
        name = _addressed(url, pair)
    if alone is None:
        return name
    spec = parse_pair(name)
    if not isinstance(spec, WatchedSpec) or spec.alone is not None:
        raise PairError(
            "--baseline-url needs a watched server: name one with --target-url "
            "http://HOST:PORT/v1 and --pair MODEL."
        )
    return f"{name} | {_addressed(alone, spec.engine.model)}"


def _addressed(url: str, models: str) -> str:
    if not _SERVER.match(url):
        raise PairError(f"{url!r} is not the address of a server: use http://HOST:PORT/v1.")
    if "#" in url:
        return url
    return f"{url}#{models}"


def is_row(name: str) -> bool:
    """Whether the table of pairs has a row of this name."""
    from .table import named_pair

    return name == BUILTIN or named_pair(name) is not None


def _on_servers(name: str) -> ServerSpec:
    """The spec of "URL#MODEL+DRAFT", of "URL#MODEL" or of "URL#MODEL | URL#MODEL"."""
    servers = []
    for part in _BETWEEN.split(name):
        url, _, models = part.partition("#")
        servers.append((url.strip(), models.strip()))
    is_watched = not any("+" in models for _, models in servers)
    max_servers = 2 if is_watched else 1
    if len(servers) > max_servers:
        raise PairError(UNNAMED)
    url, models = servers[0]
    if is_watched:
        engine = Address(url, models)
        if len(servers) == 1:
            return WatchedSpec(engine)
        alone = Address(*servers[1])
        return WatchedSpec(engine, alone)
    model, _, draft = models.partition("+")
    if not draft.strip():
        raise PairError(UNNAMED)
    return ServedSpec(Address(url, model.strip()), draft.strip())
