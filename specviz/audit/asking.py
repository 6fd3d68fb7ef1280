"""Requests of an audit to a server: streams, sampled texts, and lists of likely tokens, all
counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

from ..base.errors import PairError, ServerError, SettingsError
from ..core.settings import Settings
from ..remote.address import server_address
from ..remote.identity import (
    LLAMA_CPP,
    SGLANG,
    VLLM,
    Identity,
    counters_text,
    identity_of,
    served_models,
)
from ..remote.wire import ANOTHER_FORM, Server
from ..sides.served.adapters import Completions, LlamaTarget
from ..sides.served.interface import TargetServer
from ..sides.watched.engines import LlamaEngine, Prompt, VllmEngine, WatchedEngine
from ..sides.watched.steps import Step, reconciled
from .other_streams import TextEngine, TextReader
from .sglang import SglangEngine, SglangReader, SglangTarget, drawn_ids

Ids = tuple[int, ...]


class SpentError(ServerError):
    """The audit has used up its announced requests."""


class RequestBudget:
    """Counts the requests of an audit, and refuses more than were announced."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._lock = threading.Lock()

    def take(self) -> None:
        """Count one request. Raises `SpentError` if there is none left."""
        with self._lock:
            if self.used >= self.limit:
                raise SpentError(
                    f"the audit has sent all {self.limit} requests that it announced: allow more "
                    "--minutes."
                )
            self.used += 1

    @property
    def left(self) -> int:
        """Requests that may still be sent."""
        return self.limit - self.used


@dataclass(frozen=True, slots=True)
class Streamed:
    """One streamed text.

    ids: empty if the server reports none.
    tokens: of the text.
    chunks: those with text.
    first, last: seconds from the request to the first and the last chunk.
    first_tokens: tokens in the first chunk.
    steps: the drafted and accepted tokens of each step, if reported.
    drafted, accepted: of the whole text; None if not reported.
    """

    ids: Ids
    text: str
    tokens: int
    chunks: int
    first: float
    last: float
    first_tokens: int
    steps: tuple[Step, ...]
    drafted: int | None
    accepted: int | None

    @property
    def rate(self) -> float | None:
        """Tokens per second, without the first chunk; None if everything came at once."""
        tokens = self.tokens - self.first_tokens
        seconds = self.last - self.first
        if tokens <= 0 or seconds <= 0.0:
            return None
        return tokens / seconds


class AuditedModel:
    """A model on a server.

    address: "http://HOST:8000/v1#MODEL"; without "#MODEL" the server must have a single one.
    budget: counts every request. Raises `ServerError` and `PairError`.
    """

    def __init__(
        self, address: str, budget: RequestBudget, answer_seconds: float | None = None
    ) -> None:
        url, _, name = address.partition("#")
        self.server = Server(
            server_address(url), on_request=budget.take, answer_seconds=answer_seconds
        )
        self.name = name or self._only_model()
        self.identity: Identity = identity_of(self.server, self.name)
        self.engine = self._engine()
        self._target = self._target_server()

    @property
    def shown(self) -> str:
        """Host and port, for sentences."""
        return self.server.shown

    @property
    def tells_drafts(self) -> bool:
        """Whether its streams always report drafts, so that no report means no drafts."""
        return self.engine.tells_steps

    def stream(self, prompt: Prompt, tokens: int) -> Streamed:
        """Stream one greedy text of `tokens` tokens. Raises `ServerError`."""
        settings = Settings(max_new_tokens=tokens, ignore_eos=True)
        reader = self.engine.reader(self.engine, settings)
        body = self.engine.question(prompt, settings)
        steps: list[Step] = []
        arrivals: list[float] = []
        with closing(self.server.stream(self.engine.path, body)) as chunks:
            for at, chunk in chunks:
                steps_of_chunk = reader.read(chunk, at)
                if steps_of_chunk:
                    arrivals.append(at)
                steps += steps_of_chunk
        steps += reader.rest()
        if not steps:
            raise ServerError(f"{self.shown} streamed no text: see its log.")
        if reader.ended is None:
            raise ServerError(
                f"{self.shown} ended its stream before the answer was complete: see its log."
            )
        if reader.counts is not None:
            steps = reconciled(steps, reader.counts) or steps
        return _streamed(steps, len(arrivals), reader)

    def draw(self, prompt: Prompt, settings: Settings) -> tuple[Ids, str]:
        """Draw one sampled text: its ids, if the server reports them, and its text. Raises
        `ServerError`."""
        body = self.engine.question(prompt, settings)
        body["stream"] = False
        body.pop("stream_options", None)
        answer = self.server.ask(self.engine.path, body)
        try:
            if self.identity.engine == LLAMA_CPP:
                return _as_ids(answer["tokens"]), answer["content"]
            if self.identity.engine == SGLANG:
                return drawn_ids(answer)
            choice = answer["choices"][0]
            ids = _as_ids(choice.get("token_ids") or ())
            return ids, str(choice["text"])
        except ANOTHER_FORM as error:
            raise ServerError(self.server.rubbish()) from error

    def tokenize(self, text: str) -> Ids:
        """The ids of a text; empty if the server does not report them."""
        return tuple(self.engine.tokenize(text))

    def listings(self, prefixes: Sequence[Ids], listed: int) -> list[dict[int, float]]:
        """The likeliest next tokens after each prefix, with their log-probabilities. They come from
        reading the prefix, not from a step with drafts. Raises `ServerError` and `PairError`."""
        if self._target is None:
            raise PairError(f"{self.shown} returns no log-probabilities by token id.")
        return self._target.listings(prefixes, listed)

    def text_of(self, token_id: int) -> str:
        """The text of a token; its number if the server does not report the text."""
        if self._target is not None:
            with suppress(PairError, ServerError):
                return self._target.detokenize([token_id])
        return str(token_id)

    def counters(self) -> str | None:
        """The text of its /metrics; None if it has none."""
        return counters_text(self.server, self.name)

    def says_loaded(self) -> bool | None:
        """Whether the server reports a loaded draft; None if it does not say."""
        if self.identity.engine != LLAMA_CPP:
            return None
        with suppress(PairError, ServerError, *ANOTHER_FORM):
            slots = self.server.ask("/slots", query={"model": self.name})
            return any(bool(slot["speculative"]) for slot in slots)
        return None

    def _only_model(self) -> str:
        models = sorted(served_models(self.server))
        if len(models) != 1:
            raise SettingsError(
                f"{self.server.shown} has {len(models)} models: add #MODEL to the address, with "
                f"one of {', '.join(models[:5]) or 'its models'}."
            )
        return models[0]

    def _engine(self) -> WatchedEngine:
        if self.identity.engine == LLAMA_CPP:
            return LlamaEngine(self.server, self.name, self.identity)
        if self.identity.engine == VLLM:
            return VllmEngine(self.server, self.name, self.identity, with_texts=False)
        if self.identity.engine == SGLANG:
            return SglangEngine(self.server, self.name, self.identity)
        return TextEngine(self.server, self.name, self.identity)

    def _target_server(self) -> TargetServer | None:
        if self.identity.engine == LLAMA_CPP:
            return LlamaTarget(self.server, self.name)
        if self.identity.engine == VLLM:
            return Completions(self.server, self.name)
        if self.identity.engine == SGLANG:
            return SglangTarget(self.server, self.name)
        return None


def _as_ids(values: Sequence[Any]) -> Ids:
    return tuple(int(value) for value in values)


def _streamed(steps: Sequence[Step], chunks: int, reader: Any) -> Streamed:
    """The record of a stream's steps."""
    tokens = [token for step in steps for token in step.tokens]
    reported_steps = [step for step in steps if step.drafted is not None]
    drafted: int | None = None
    accepted: int | None = None
    if len(reported_steps) == len(steps):
        drafted = sum(step.drafted or 0 for step in steps)
        accepted = sum(step.accepted or 0 for step in steps)
    count = len(tokens)
    ids: Ids = tuple(token.id for token in tokens)
    if isinstance(reader, TextReader):
        ids = ()
        count = reader.count or len(tokens)
    if isinstance(reader, (TextReader, SglangReader)):
        # They report the whole text, not its steps.
        drafted = reader.drafted
        accepted = reader.accepted
    first = tokens[0].at
    return Streamed(
        ids=ids,
        text="".join(token.text for token in tokens),
        tokens=count,
        chunks=chunks,
        first=first,
        last=tokens[-1].at,
        first_tokens=sum(token.at == first for token in tokens),
        steps=tuple(steps),
        drafted=drafted,
        accepted=accepted,
    )


def sampling_settings(temperature: float, top_k: int, length: int, seed: int) -> Settings:
    """The settings of a sampled text of `length` tokens."""
    plain = Settings(temperature=temperature, top_k=top_k, max_new_tokens=length)
    return replace(plain, seed=seed)
