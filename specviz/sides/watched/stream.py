"""The stream of a watched server: its chunks with the times at which they came, and what every
engine's adapter makes of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeAlias

from ...core.events import EndReason
from ...errors import PairError, ServerError
from ...remote.identity import Identity
from ...remote.wire import Server
from ...settings import Settings
from .steps import Counts

Prompt: TypeAlias = str | Sequence[int]
"""A text, or token ids."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """What one chunk tells.

    ids, texts: of its tokens, which may be none. drafted, accepted: how many tokens of this stream
    the server has drafted and accepted so far, and step, the same for all tokens of an engine's
    step: None if chunks do not tell. ended: why the text ended, if it did. counts: of all verify
    steps, if this chunk tells them.
    """

    ids: Sequence[int] = ()
    texts: Sequence[str] = ()
    drafted: int | None = None
    accepted: int | None = None
    step: object = None
    ended: EndReason | None = None
    counts: Counts | None = None


class WatchedEngine:
    """A serving engine. model: as it calls it. steps_told: whether its chunks tell their steps;
    otherwise a chunk is taken as a step."""

    steps_told = False

    def __init__(self, server: Server, model: str, identity: Identity) -> None:
        self.server, self.model, self.identity = server, model, identity

    def request(self, prompt: Prompt, settings: Settings) -> tuple[str, dict[str, Any]]:
        """The address and the body that ask for a stream. Raises `SettingsError` for a setting that
        this engine lacks."""
        raise NotImplementedError

    def reader(self, settings: Settings) -> Reader:
        """A reader for one stream."""
        raise NotImplementedError

    def tokenize(self, prompt: str) -> list[int]:
        """The ids of a prompt as the engine reads it; empty if it does not tell."""
        raise NotImplementedError

    def told_ids(self, body: dict[str, Any]) -> list[int]:
        """The ids that it answers to a question of its tokenizer; empty if it does not tell."""
        try:
            found = self.server.ask("/tokenize", body)["tokens"]
            return found if all(type(one) is int for one in found) else []
        except (PairError, RuntimeError, KeyError, TypeError):
            return []


class Reader:
    """Reads the chunks of one stream, in order."""

    def __init__(self, engine: WatchedEngine, settings: Settings) -> None:
        self._server, self._most = engine.server, settings.max_new_tokens
        self._count = 0  # tokens so far

    def read(self, chunk: dict[str, Any]) -> Arrival:
        """What a chunk tells. Raises `ServerError` if it tells of a failure or no token ids."""
        if "error" in chunk:
            error = chunk["error"]
            said = error.get("message") if isinstance(error, dict) else error
            why = f": {' '.join(str(said).split())[:200].rstrip('.')}" if said else ""
            raise ServerError(f"{self._server.shown} failed in mid-answer{why}.")
        try:
            return self._told(chunk)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ServerError(self._server.rubbish()) from error

    def _told(self, chunk: dict[str, Any]) -> Arrival:
        raise NotImplementedError

    def _full(self) -> EndReason:
        """Why a text ended that no token ended."""
        return "length" if self._count >= self._most else "context"


def stamped(
    server: Server, path: str, body: dict[str, Any]
) -> Generator[tuple[float, dict[str, Any]]]:
    """The chunks of a stream, each with the seconds from the request to its arrival.

    A thread reads them, so that no work on one chunk delays the time of the next. Raises
    `ServerError`. Closing the generator ends the request.
    """
    arrived: SimpleQueue[tuple[float, Any]] = SimpleQueue()
    left = threading.Event()

    def read() -> None:
        start = time.perf_counter()
        try:
            with server.stream(path, body) as chunks:
                for chunk in chunks:
                    arrived.put((time.perf_counter() - start, chunk))
                    if left.is_set():
                        return
            arrived.put((0.0, None))
        except BaseException as error:
            arrived.put((0.0, error))

    threading.Thread(target=read, name="stream", daemon=True).start()
    try:
        while True:
            at, chunk = arrived.get()
            if chunk is None:
                return
            if isinstance(chunk, BaseException):
                raise chunk
            if not isinstance(chunk, dict):
                raise ServerError(server.rubbish())
            yield at, chunk
    finally:
        left.set()
