"""A text that a model behind an API writes, for models whose probabilities nobody can ask for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import PairError, ServerError
from .wire import RefusedError, Server

# What some models refuse: those that reason have a temperature of their own, and older servers
# know neither of the others.
REFUSABLE = ("temperature", "stream_options", "max_completion_tokens")


@dataclass(frozen=True, slots=True)
class Written:
    """What an API wrote. counted: its tokens as the API counts them, or None. seconds: from the
    first piece of the stream to the last, as this machine sees it."""

    text: str
    counted: int | None
    seconds: float


def split_closed(address: str) -> tuple[str, str]:
    """Address and model in "https://HOST/v1#MODEL". Raises `PairError` without either."""
    url, _, model = address.partition("#")
    if not url.strip() or not model.strip():
        raise PairError("an API is named https://HOST/v1#MODEL: MODEL as the API calls it.")
    return url.strip(), model.strip()


def written_by(
    server: Server, model: str, prompt: str, most: int, *, continues: bool = False
) -> Written:
    """The answer to a prompt from `/chat/completions`, or, if it `continues` the prompt, from
    `/completions`, greedy where the API allows that; about `most` tokens. Raises `ServerError`."""
    if continues:
        path, asked = "completions", {"prompt": prompt, "max_tokens": most}
    else:
        turns = [{"role": "user", "content": prompt}]
        path, asked = "chat/completions", {"messages": turns, "max_completion_tokens": most}
    options: dict[str, Any] = {"temperature": 0, "stream_options": {"include_usage": True}}
    body = {"model": model, "stream": True, **asked, **options}
    while True:
        try:
            return _read(server, path, body)
        except RefusedError as refused:
            known = [name for name in REFUSABLE if name in body and name in refused.said]
            if "chat template" in refused.said and not continues:
                raise ServerError(
                    f"{server.shown} has no chat template for {model}: let it continue the prompt "
                    "instead of answering it (--continues)."
                ) from refused
            if not known:
                raise
            body = {name: value for name, value in body.items() if name not in known}


def _read(server: Server, path: str, body: dict[str, Any]) -> Written:
    pieces: list[str] = []
    times: list[float] = []
    counted: int | None = None
    with server.stream(path, body) as chunks:
        for chunk in chunks:
            counted = _counted(chunk) or counted
            for piece in _pieces(server, chunk):
                pieces.append(piece)
                times.append(time.perf_counter())
    if not pieces:
        raise ServerError(f"{server.shown} wrote nothing: try another prompt or a greater length.")
    return Written("".join(pieces), counted, times[-1] - times[0])


def _pieces(server: Server, chunk: dict[str, Any]) -> Iterator[str]:
    try:
        if "error" in chunk:
            raise ServerError(f"{server.shown} broke off in mid-answer: see its log, or try again.")
        for choice in chunk["choices"]:
            piece = choice["delta"].get("content") if "delta" in choice else choice["text"]
            if piece:
                yield str(piece)
    except (KeyError, TypeError, AttributeError) as error:
        raise ServerError(server.rubbish()) from error


def _counted(chunk: dict[str, Any]) -> int | None:
    usage = chunk.get("usage") if isinstance(chunk, dict) else None
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if type(count) is int and count > 0 else None
