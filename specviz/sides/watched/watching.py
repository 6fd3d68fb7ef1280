"""A watched serving engine that speculates on its own: its stream is a lane, and a second server's
stream may be the baseline.

The lanes run one after the other, each as one request. Two servers on one machine would disturb
each other, and a stream cannot be made to wait for another one.
"""

from __future__ import annotations

import platform
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from ...base.errors import ServerError, SettingsError
from ...base.version import __version__
from ...core.events import (
    SERVER,
    Agreement,
    End,
    EndReason,
    Header,
    RaceEvents,
    Round,
    agreement_of,
)
from ...core.lanes import BASELINE, SPECULATIVE, Lane
from ...core.messages import Messages, checked_messages, is_conversation
from ...core.settings import Settings
from ...remote.address import ServerAddress
from ...remote.identity import LLAMA_CPP, counters, identity_of, moved
from ...remote.wire import Server
from .engines import LlamaEngine, Prompt, Reader, VllmEngine, WatchedEngine
from .steps import Step, reconciled, rounds_of

if TYPE_CHECKING:
    from ...core.types import Prompt as AnyPrompt

WARM_PROMPT = "The"  # not the run's own prompt, which the server would then have in its cache
WARM_TOKENS = 8


def watch(
    watched: WatchedEngine,
    alone: WatchedEngine | None,
    prompt: AnyPrompt,
    settings: Settings,
) -> RaceEvents:
    """Watch one stream of a server, then one of the server of its target alone if there is one.

    Yields a `Header`, the `Round`s as they come, and an `End`. If the server sends the drafted
    counts only at the end, all rounds follow once more and replace the first ones. The server
    decides `gamma`, `drafter`, `gamma_policy` and `verdict`: those of the settings are not used.
    Raises `SettingsError` for a setting that the server lacks, and `ServerError`. Closing the
    generator ends the request; so does sending it True after an event, which yields the `End`.
    """
    settings = served_settings(settings)
    engines = {SPECULATIVE: watched}
    if alone:
        engines[BASELINE] = alone
    question = _question_of(prompt, watched)
    for engine in engines.values():
        engine.question(question.asked, settings)  # raises if the engine lacks a setting
        tells_steps(engine, settings)
    lanes = {lane: _Lane(engine, lane, settings) for lane, engine in engines.items()}
    counted = None
    is_stopped = yield _header(engines, question, settings)
    for name, lane in lanes.items():
        if is_stopped:
            break
        counters_before = None
        if name == SPECULATIVE:
            counters_before = counters(watched.server, watched.model)
        with closing(lane.rounds(question.asked)) as rounds:
            for round_ in rounds:
                is_stopped = yield round_
                if is_stopped:
                    break
        if name == SPECULATIVE and not is_stopped:
            counted = moved(counters_before, counters(watched.server, watched.model))
    agreements = _agreements(lanes) if settings.greedy else None
    reasons = {name: lane.reason for name, lane in lanes.items()}
    yield End(reasons, agreements, counted)


def _agreements(lanes: Mapping[Lane, _Lane]) -> dict[Lane, Agreement] | None:
    """The comparison of the texts of greedy lanes; None without a baseline."""
    if BASELINE not in lanes:
        return None
    agreement = agreement_of(lanes[SPECULATIVE].emitted, lanes[BASELINE].emitted)
    return {SPECULATIVE: agreement}


class _Question(NamedTuple):
    """A prompt and how it is asked. asked: what the server gets. text, ids: the same, for the
    header. messages: the turns of a conversation."""

    asked: Prompt
    text: str
    ids: Sequence[int]
    messages: Messages = ()


def _question_of(prompt: AnyPrompt, watched: WatchedEngine) -> _Question:
    """How an engine is asked this prompt. Raises `SettingsError` and `ServerError`."""
    messages: Messages = ()
    text = ""
    if is_conversation(prompt):
        messages = checked_messages(prompt)
        asked, text = watched.rendered(messages)
    else:
        asked = prompt
    if isinstance(asked, str):
        return _Question(asked, asked, watched.tokenize(asked), messages)
    if not text:
        text = " ".join(map(str, asked))
    return _Question(asked, text, asked, messages)


def served_settings(settings: Settings) -> Settings:
    """The settings of a run in which the server drafts. Raises `SettingsError` for a chat
    template, which the server would have to apply."""
    if settings.chat in ("on", "literal"):
        raise SettingsError(
            "a watched server gets the prompt without a chat template: set chat to 'off', or write "
            "the template into the prompt."
        )
    return replace(
        settings, chat="off", gamma=0, drafter="none", gamma_policy="fixed", verdict="token"
    )


class _Lane:
    """One stream, as rounds. emitted: the rounds in their latest version. reason: the end
    reason."""

    def __init__(self, engine: WatchedEngine, lane: Lane, settings: Settings) -> None:
        self._engine = engine
        self._lane = lane
        self._settings = settings
        self._steps: list[Step] = []  # so far
        self.emitted: list[Round] = []
        self.reason: EndReason = "stopped"

    def rounds(self, prompt: Prompt) -> Generator[Round]:
        """The rounds as they come, then all of them again if their counts came only at the end."""
        if not self._settings.max_new_tokens:
            self.reason = "length"
            return
        reader = self._engine.reader(self._engine, self._settings)
        with closing(self._streamed_steps(prompt, reader)) as steps:
            for round_ in rounds_of(steps, self._lane):
                self.emitted.append(round_)
                yield round_
        if reader.ended is None:
            raise ServerError(
                f"{self._engine.server.shown} ended its stream before the answer was complete: see "
                "its log."
            )
        self.reason = reader.ended
        if self._lane == BASELINE or not reader.counts or not self._steps:
            return
        steps_with_counts = reconciled(self._steps, reader.counts)
        if steps_with_counts:
            self.emitted = list(rounds_of(steps_with_counts, self._lane))
            yield from self.emitted

    def _streamed_steps(self, prompt: Prompt, reader: Reader) -> Generator[Step]:
        """The steps as they come."""
        engine = self._engine
        body = engine.question(prompt, self._settings)
        with closing(engine.server.stream(engine.path, body)) as chunks:
            for at, chunk in chunks:
                for step in reader.read(chunk, at):
                    self._steps.append(step)
                    yield step
        yield from reader.rest()


def tells_steps(engine: WatchedEngine, settings: Settings) -> bool:
    """Let an engine write a few tokens as a warm-up, and return whether it shows the drafts of
    each step. Raises `ServerError`."""
    few_tokens = replace(settings, max_new_tokens=WARM_TOKENS, stop=(), ignore_eos=True)
    reader = engine.reader(engine, few_tokens)
    body = engine.question(WARM_PROMPT, few_tokens)
    for at, chunk in engine.server.stream(engine.path, body):
        reader.read(chunk, at)
    return engine.tells_steps or reader.counts is not None


def _header(engines: dict[Lane, WatchedEngine], question: _Question, settings: Settings) -> Header:
    watched = engines[SPECULATIVE]
    last_turn = None
    messages = question.messages
    if messages:
        content = messages[-1].content.strip()
        if content in question.text:
            last_turn = content
    versions = {"specviz": __version__, "python": platform.python_version()}
    if BASELINE in engines:
        versions["baseline"] = engines[BASELINE].identity.software
    return Header(
        prompt=question.text,
        prompt_ids=tuple(question.ids),
        lanes={SPECULATIVE: settings},
        drafts={SPECULATIVE: None},
        target={
            "name": watched.model,
            "parameters": watched.identity.parameters,
            "form": SERVER,
            "revision": None,
            "context": watched.identity.context,
        },
        device=watched.identity.software,
        dtype="unknown",
        versions=versions,
        threads=0,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        prefill_seconds={lane: {} for lane in engines},
        mode="sequential",
        source=watched.identity.software,
        question=last_turn or None,
        messages=messages if len(messages) > 1 else None,
    )


@dataclass(frozen=True, eq=False)
class Watched:
    """An engine on a server that drafts and judges on its own.

    name: of its model. stream: the watched engine. alone: the engine of the target alone, or None.
    """

    name: str
    stream: WatchedEngine
    alone: WatchedEngine | None = None

    drafters = ("none",)  # of ours: the server drafts

    def settings(self, **values: Any) -> Settings:
        """`Settings` with these values. Raises `SettingsError`."""
        return Settings(**{"drafter": "none", **values})

    def race(
        self, prompt: AnyPrompt, lanes: Mapping[Lane, Settings], memory: object = ()
    ) -> RaceEvents:
        """The events of a race: the lane of the server's stream, and a baseline if there is a
        second server. Raises `SettingsError` and `ServerError`."""
        if set(lanes) != {SPECULATIVE} or memory:
            raise SettingsError(
                "a watched server has only one lane with drafts: remove the other lanes."
            )
        return watch(self.stream, self.alone, prompt, lanes[SPECULATIVE])


def recognised(address: ServerAddress, model: str) -> WatchedEngine:
    """The engine at an address that serves this model. Raises `ServerError`, and `PairError` if
    the server does not have it."""
    server = Server(address)
    identity = identity_of(server, model)
    if identity.engine == LLAMA_CPP:
        return LlamaEngine(server, model, identity)
    return VllmEngine(server, model, identity)
