"""Pairs whose target is on a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..core.kinds import resolved
from ..errors import PairError
from ..remote.address import server_address
from ..sides.served.target import RemoteTarget, remote_target
from .hub import find_source
from .load import Asked, source_of
from .pair import Pair
from .progress import Progress
from .spec import ServedSpec, WatchedSpec, operator_spec, parse_pair
from .weights import ModelSource, best_device, load_model, read_tokenizer


def address_of(url: str | None, pair: str, alone: str | None = None) -> str:
    """The name of a pair: `pair` itself, or for a target on a server at `url` the whole name of
    "MODEL+DRAFT", or of "MODEL" to watch it.

    url may hold the models itself, behind a "#". alone: where a second server holds the model of a
    watched one. Raises `PairError` for what cannot be put together.
    """
    name = pair if url is None else _at(url, pair)
    if alone is None:
        return name
    spec = parse_pair(name)
    if not isinstance(spec, WatchedSpec) or spec.alone is not None:
        raise PairError(
            "--baseline-url belongs to a server that is watched: name one with "
            "--target-url http://HOST:PORT/v1 and --pair MODEL."
        )
    return f"{name} | {_at(alone, spec.engine.model)}"


def _at(url: str, models: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise PairError(f"{url!r} is no address of a server: write http://HOST:PORT/v1.")
    if "#" in url:
        return url
    if "://" in models:
        raise PairError("beside --target-url, name the pair MODEL+DRAFT, without an address.")
    return f"{url}#{models}"


def load_served(spec: ServedSpec, asked: Asked) -> Pair:
    """The pair of a target on a server and a draft here, whose tokenizer must be the target's too.

    The name of the pair has no address. Raises `PairError` and `ServerError`.
    """
    if asked.on_progress is not None:
        asked.on_progress(Progress("asking the server of the target"))
    target, source, tokenizer = served_target(spec)
    options = replace(asked.options[1], device=asked.device or best_device())
    draft = load_model(source, options, asked.on_progress)
    name = f"{target.name_or_path}+{source.shown}"
    return Pair(target=target, draft=draft, tokenizer=tokenizer, name=name)


def load_operator(_: object, asked: Asked) -> Any:
    """The pair of SPECVIZ_REMOTE. Raises `PairError` and `ServerError`."""
    spec = operator_spec()
    return resolved(source_of(spec).load)(spec, asked)


def served_target(spec: ServedSpec) -> tuple[RemoteTarget, ModelSource, Any]:
    """The target of such a pair, its draft's source, and the tokenizer that both must have.

    Raises `PairError` and `ServerError`.
    """
    source = find_source(spec.draft)
    tokenizer = read_tokenizer(source)
    at = spec.target
    return remote_target(server_address(at.url), at.model, tokenizer), source, tokenizer
