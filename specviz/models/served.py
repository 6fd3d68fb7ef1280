"""Pairs whose target is on a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..environment import REMOTE, SERVED
from ..errors import PairError
from ..remote.address import server_address
from ..remote.target import RemoteTarget, remote_target, split_address
from ..remote.watched.recognise import watched_addresses
from .hub import ModelSource, find_source
from .metadata import read_tokenizer
from .pair import Pair
from .progress import Progress, Watcher
from .watched import watched_pair
from .weights import LoadOptions, load_model


def served_address(name: str) -> str | None:
    """The whole name of a pair whose target is on a server, "http://HOST:PORT/v1#MODEL+DRAFT", or
    that is only watched (`watched.watched_pair`); None for other pairs. `SERVED` is the one that
    the operator has named. Raises `PairError`."""
    if name == SERVED:
        address = REMOTE.read()
        if address is None:
            raise PairError(f"no server holds a target here: set {REMOTE.name}.")
        return address
    is_served = watched_addresses(name) is not None or split_address(name) is not None
    return name if is_served else None


def address_of(url: str | None, pair: str, alone: str | None = None) -> str:
    """The name of a pair: `pair` itself, or for a target on a server at `url` the whole name of
    "MODEL+DRAFT", or of "MODEL" to watch it.

    url may hold the models itself, behind a "#". alone: where a second server holds the model of a
    watched one. Raises `PairError` for what cannot be put together.
    """
    name = pair if url is None else _at(url, pair)
    if alone is None:
        return name
    watched = watched_addresses(name)
    if watched is None or len(watched) != 1:
        raise PairError(
            "--baseline-url belongs to a server that is watched: name one with "
            "--target-url http://HOST:PORT/v1 and --pair MODEL."
        )
    return f"{name} | {_at(alone, watched[0][1])}"


def _at(url: str, models: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise PairError(f"{url!r} is no address of a server: write http://HOST:PORT/v1.")
    if "#" in url:
        return url
    if "://" in models:
        raise PairError("beside --target-url, name the pair MODEL+DRAFT, without an address.")
    return f"{url}#{models}"


def served_pair(
    address: str, options: LoadOptions, device: torch.device, on_progress: Watcher | None
) -> Pair:
    """The pair with a name such as "http://HOST:PORT/v1#MODEL+DRAFT", or a `Watched` one.

    The draft is loaded here, as `options` say; its tokenizer must be the target's too. The name
    of the pair has no address. Raises `PairError` and `ServerError`.
    """
    if on_progress is not None:
        on_progress(Progress("asking the server of the target"))
    if (watched := watched_pair(address)) is not None:
        return watched
    target, source, tokenizer = served_target(address)
    draft = load_model(source, replace(options, device=device), on_progress)
    name = f"{target.name_or_path}+{source.shown}"
    return Pair(target=target, draft=draft, tokenizer=tokenizer, name=name)


def served_target(address: str) -> tuple[RemoteTarget, ModelSource, Any]:
    """The target of such a pair, its draft's source, and the tokenizer that both must have.

    Raises `PairError` and `ServerError`.
    """
    parts = split_address(address)
    assert parts is not None, "callers look before"
    url, model, draft = parts
    source = find_source(draft)
    tokenizer = read_tokenizer(source)
    return remote_target(server_address(url), model, tokenizer), source, tokenizer
