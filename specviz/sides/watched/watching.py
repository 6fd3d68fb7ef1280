"""A serving engine that speculates by itself, watched: its stream as a lane, and perhaps that of a
second server as the baseline.

The lanes run one after the other, each as one request. Two servers on one machine would disturb
each other, and a stream cannot be told to wait for another one.
"""

from __future__ import annotations

import platform
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from ..._version import __version__
from ...core.events import SERVER, End, EndReason, Event, Header, Round, agreement_of
from ...errors import PairError, ServerError, SettingsError
from ...lanes import BASELINE, SPECULATIVE, Lane
from ...pairs.progress import Progress
from ...pairs.spec import WatchedSpec
from ...remote.address import ServerAddress, server_address
from ...remote.identity import LLAMA_CPP, counters, identity_of, moved
from ...remote.wire import Server
from ...settings import Settings
from .engines import LlamaEngine, Prompt, Reader, VllmEngine, WatchedEngine
from .steps import Step, reconciled, rounds_of

WARM_PROMPT = "The"  # not the run's own prompt, which would then lie in the server's cache
WARM_TOKENS = 8

Stoppable = Generator[Event, bool | None, None]


def watch(
    watched: WatchedEngine, alone: WatchedEngine | None, prompt: Prompt, settings: Settings
) -> Stoppable:
    """Watch one stream of a server, then one of the server of its target alone if there is one.

    Yields a `Header`, the `Round`s as they come, and an `End`. If the server tells only at the end
    what its steps drafted, the rounds follow then once more from the first on, in the place of the
    others.
    `gamma`, `drafter`, `gamma_policy` and `verdict` are the server's affair: those of the settings
    are not used. Raises `SettingsError` for what the server lacks, and `ServerError`. Closing the
    generator ends the request; so does sending it True after an event, which yields the `End`.
    """
    settings = served_settings(settings)
    engines = {SPECULATIVE: watched} | ({BASELINE: alone} if alone else {})
    for engine in engines.values():
        engine.question(prompt, settings)
        tells_steps(engine, settings)
    ids = watched.tokenize(prompt) if isinstance(prompt, str) else list(prompt)
    shown = prompt if isinstance(prompt, str) else " ".join(map(str, prompt))
    lanes = {lane: _Lane(engine, lane, settings) for lane, engine in engines.items()}
    counted = None
    is_stopped = yield _header(engines, shown, ids, settings)
    for lane, one in lanes.items():
        if is_stopped:
            break
        before = counters(watched.server, watched.model) if lane == SPECULATIVE else None
        with closing(one.rounds(prompt)) as rounds:
            for r in rounds:
                is_stopped = yield r
                if is_stopped:
                    break
        if lane == SPECULATIVE and not is_stopped:
            counted = moved(before, counters(watched.server, watched.model))
    found = None
    if alone and settings.greedy:
        found = {SPECULATIVE: agreement_of(*(one.emitted for one in lanes.values()))}
    yield End({lane: one.reason for lane, one in lanes.items()}, found, counted)


def served_settings(settings: Settings) -> Settings:
    """The settings of a run whose drafts are the server's affair. Raises `SettingsError` for a chat
    template, which the server would have to apply."""
    if settings.chat in ("on", "literal"):
        raise SettingsError(
            "a watched server reads the prompt as it is: set chat to 'off', or write the template "
            "into the prompt."
        )
    return replace(
        settings, chat="off", gamma=0, drafter="none", gamma_policy="fixed", verdict="token"
    )


class _Lane:
    """One stream, as rounds. emitted: the rounds so far, as they were told last. reason: why the
    text ended."""

    def __init__(self, engine: WatchedEngine, lane: Lane, settings: Settings) -> None:
        self._engine, self._lane, self._settings = engine, lane, settings
        self._steps: list[Step] = []  # so far
        self.emitted: list[Round] = []
        self.reason: EndReason = "stopped"

    def rounds(self, prompt: Prompt) -> Generator[Round]:
        """The rounds as they come; then those again whose counts were told only at the end."""
        if not self._settings.max_new_tokens:
            self.reason = "length"
            return
        reader = self._engine.reader(self._engine, self._settings)
        with closing(self._coming(prompt, reader)) as coming:
            for one in rounds_of(coming, self._lane):
                self.emitted.append(one)
                yield one
        if reader.ended is None:
            raise ServerError(
                f"{self._engine.server.shown} ended its stream in mid-answer: see its log."
            )
        self.reason = reader.ended
        if not (reader.counts and self._steps) or self._lane == BASELINE:
            return
        if told := reconciled(self._steps, reader.counts):
            self.emitted = list(rounds_of(told, self._lane))
            yield from self.emitted

    def _coming(self, prompt: Prompt, reader: Reader) -> Generator[Step]:
        """The steps as they come."""
        engine, body = self._engine, self._engine.question(prompt, self._settings)
        with closing(engine.server.stream(engine.path, body)) as chunks:
            for at, chunk in chunks:
                for step in reader.read(chunk, at):
                    self._steps.append(step)
                    yield step
        yield from reader.rest()


def tells_steps(engine: WatchedEngine, settings: Settings) -> bool:
    """Let an engine write a few tokens, which also warms it up; returns whether it tells what each
    of its steps drafts. Raises `ServerError`."""
    few = replace(settings, max_new_tokens=WARM_TOKENS, stop=(), ignore_eos=True)
    reader = engine.reader(engine, few)
    for at, chunk in engine.server.stream(engine.path, engine.question(WARM_PROMPT, few)):
        reader.read(chunk, at)
    return engine.steps_told or reader.counts is not None


def _header(
    engines: dict[Lane, WatchedEngine], prompt: str, ids: Sequence[int], settings: Settings
) -> Header:
    watched, alone = engines[SPECULATIVE], engines.get(BASELINE)
    versions = {"specviz": __version__, "python": platform.python_version()}
    return Header(
        prompt=prompt,
        prompt_ids=tuple(ids),
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
        versions=versions | ({"baseline": alone.identity.software} if alone else {}),
        threads=0,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        prefill_seconds={lane: {} for lane in engines},
        mode="sequential",
        source=watched.identity.software,
    )


@dataclass(frozen=True, eq=False)
class Watched:
    """An engine on a server, which drafts and judges by itself.

    name: of its model. stream: the engine that is watched. alone: that of the target alone, or
    None.
    """

    name: str
    stream: WatchedEngine
    alone: WatchedEngine | None = None

    drafters = ("none",)  # of ours: the server drafts

    def settings(self, **values: Any) -> Settings:
        """`Settings` with these values. Raises `SettingsError`."""
        return Settings(**{"drafter": "none", **values})

    def race(
        self, prompt: Prompt, lanes: Mapping[Lane, Settings], memory: object = ()
    ) -> Iterator[Event]:
        """What `race` yields of it: the lane of the server's stream, and a baseline if there is a
        second server. Raises `SettingsError` and `ServerError`."""
        if set(lanes) != {SPECULATIVE} or memory:
            raise SettingsError("a watched server has one lane with drafts: leave out the others.")
        return watch(self.stream, self.alone, prompt, lanes[SPECULATIVE])


def load_watched(spec: WatchedSpec, asked: Any = None) -> Watched:
    """The engines of such a name. asked: by who loads it as a pair; no option of that concerns it.
    Raises `PairError` and `ServerError`."""
    if asked is not None and asked.on_progress is not None:
        asked.on_progress(Progress("asking the server of the target"))
    addresses = [one for one in (spec.engine, spec.alone) if one is not None]
    engines = [recognised(server_address(one.url), one.model) for one in addresses]
    alone = engines[1] if engines[1:] else None
    if alone is not None and alone.identity.speculates:
        raise PairError(
            f"{alone.server.shown} speculates too: a baseline is a server of the target alone, "
            "so start it without speculation."
        )
    return Watched(engines[0].model, engines[0], alone)


def recognised(address: ServerAddress, model: str) -> WatchedEngine:
    """The engine at an address, which has this model. Raises `ServerError`, and `PairError` if it
    does not have it."""
    server = Server(address)
    identity = identity_of(server, model)
    return (LlamaEngine if identity.engine == LLAMA_CPP else VllmEngine)(server, model, identity)
