"""A serving engine that speculates by itself, watched: its stream as a lane, and perhaps that of a
second server as the baseline.

The lanes run one after the other, each as one request. Two servers on one machine would disturb
each other, and a stream cannot be told to wait for another one.
"""

from __future__ import annotations

import platform
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from ..._version import __version__
from ...core.events import SERVER, Agreement, End, EndReason, Event, Header, Round, agreement_of
from ...errors import PairError, ServerError, SettingsError
from ...lanes import BASELINE, SPECULATIVE, Lane
from ...pairs.progress import Progress
from ...pairs.spec import WatchedSpec
from ...remote.address import ServerAddress, server_address
from ...remote.identity import LLAMA_CPP, Counted, counters, identity_of, moved
from ...remote.wire import Server
from ...settings import Settings
from .engines import LlamaEngine, VllmEngine
from .steps import Counts, Step, Word, reconciled, rounds_of
from .stream import Arrival, Prompt, WatchedEngine, stamped

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
        engine.request(prompt, settings)
        _warm_up(engine, settings)
    ids = watched.tokenize(prompt) if isinstance(prompt, str) else list(prompt)
    shown = prompt if isinstance(prompt, str) else " ".join(map(str, prompt))
    header = _header(engines, shown, ids, settings)
    results = {lane: _Lane(engine, lane, settings) for lane, engine in engines.items()}
    reasons: dict[Lane, EndReason] = dict.fromkeys(engines, "stopped")
    counted = None
    is_stopped = yield header
    for lane, result in results.items():
        if is_stopped:
            break
        before = counters(watched.server, watched.model) if lane == SPECULATIVE else None
        with closing(result.rounds(prompt)) as rounds:
            for one in rounds:
                is_stopped = yield one
                if is_stopped:
                    break
        reasons[lane] = result.reason
        if lane == SPECULATIVE and not is_stopped:
            counted = moved(before, counters(watched.server, watched.model))
    yield _end(results, reasons, settings, counted)


def served_settings(settings: Settings) -> Settings:
    """The settings of a run whose drafts are the server's affair. Raises `SettingsError` for a chat
    template, which the server would have to apply."""
    if settings.chat == "on":
        raise SettingsError(
            "a watched server reads the prompt as it is: set chat to 'off', or write the template "
            "into the prompt."
        )
    return replace(
        settings, chat="off", gamma=0, drafter="none", gamma_policy="fixed", verdict="token"
    )


@dataclass
class _Lane:
    """One stream, as rounds. emitted: the rounds so far, as they were told last. counts: of its
    verify steps, if they are told at its end."""

    engine: WatchedEngine
    lane: Lane
    settings: Settings
    reason: EndReason = "stopped"
    counts: Counts | None = None
    emitted: list[Round] = field(default_factory=list)

    def rounds(self, prompt: Prompt) -> Generator[Round]:
        """The rounds as they come; then those again whose counts were told only at the end."""
        if not self.settings.max_new_tokens:
            self.reason = "length"
            return
        steps: list[Step] = []
        with closing(self._steps(prompt, steps)) as coming:
            for one in rounds_of(coming, self.lane):
                self.emitted.append(one)
                yield one
        told = self.counts and steps and self.lane != BASELINE and reconciled(steps, self.counts)
        if told:
            self.emitted = list(rounds_of(told, self.lane))
            yield from self.emitted

    def _steps(self, prompt: Prompt, steps: list[Step]) -> Generator[Step]:
        """The steps as they come, which are added to `steps`."""
        path, body = self.engine.request(prompt, self.settings)
        reader = self.engine.reader(self.settings)
        grouped = _Grouped(self.engine.steps_told, self.lane)
        with closing(stamped(self.engine.server, path, body)) as chunks:
            for at, chunk in chunks:
                for step in grouped.steps(reader.read(chunk), at):
                    steps.append(step)
                    yield step
        for step in grouped.rest():
            steps.append(step)
            yield step
        if grouped.ended is None:
            raise ServerError(
                f"{self.engine.server.shown} ended its stream in mid-answer: see its log."
            )
        self.reason, self.counts = grouped.ended, grouped.counts


class _Grouped:
    """Puts the tokens of chunks together to steps. ended, counts: once a chunk has told them."""

    def __init__(self, steps_told: bool, lane: Lane) -> None:
        self.ended: EndReason | None = None
        self.counts: Counts | None = None
        self._told, self._single = steps_told, lane == BASELINE
        self._words: list[Word] = []
        self._step: object = None
        self._before = (0, 0)  # drafted and accepted before this step
        self._so_far = (0, 0)
        self._is_first = True

    def steps(self, arrival: Arrival, at: float) -> list[Step]:
        """The steps that are complete with this chunk."""
        self.ended = arrival.ended or self.ended
        self.counts = arrival.counts or self.counts
        words = [Word(*one, at) for one in zip(arrival.ids, arrival.texts, strict=True)]
        if not words:
            return []
        if self._single:
            return [Step([word]) for word in words]
        if not self._told:
            return self._chunk(words)
        done = [] if arrival.step == self._step else self.rest()
        self._step, self._so_far = arrival.step, (arrival.drafted or 0, arrival.accepted or 0)
        self._words += words
        accepted = self._so_far[1] - self._before[1]
        return [*done, *(self.rest() if len(self._words) > accepted else [])]

    def rest(self) -> list[Step]:
        """The step whose tokens have all come, or all that will come."""
        words, self._words = self._words, []
        if not words:
            return []
        drafted = self._so_far[0] - self._before[0]
        accepted = self._so_far[1] - self._before[1]
        self._before = self._so_far
        adds_up = 0 <= accepted <= drafted and len(words) <= accepted + 1
        return [Step(words, drafted, accepted) if adds_up else Step(words)]

    def _chunk(self, words: list[Word]) -> list[Step]:
        """A chunk as a step. The first token comes from reading the prompt, without any drafts."""
        if not self._is_first:
            return [Step(words)]
        self._is_first = False
        return [Step(words[:1], 0, 0), *([Step(words[1:])] if words[1:] else [])]


def tells_steps(engine: WatchedEngine) -> bool:
    """Whether an engine tells what each of its steps drafts, by a short stream. Raises
    `ServerError`."""
    return _warm_up(engine, served_settings(Settings()))


def _warm_up(engine: WatchedEngine, settings: Settings) -> bool:
    """Let an engine write a few tokens; returns whether it tells what its steps draft."""
    few = replace(settings, max_new_tokens=WARM_TOKENS, stop=(), ignore_eos=True)
    path, body = engine.request(WARM_PROMPT, few)
    reader = engine.reader(few)
    with closing(stamped(engine.server, path, body)) as chunks:
        arrivals = [reader.read(chunk) for _, chunk in chunks]
    return engine.steps_told or any(one.counts is not None for one in arrivals)


def _header(
    engines: dict[Lane, WatchedEngine], prompt: str, ids: Sequence[int], settings: Settings
) -> Header:
    watched, alone = engines[SPECULATIVE], engines.get(BASELINE)
    versions = {"specviz": __version__, "python": platform.python_version()}
    return Header(
        prompt=prompt,
        prompt_ids=tuple(ids),
        settings=settings,
        target={
            "name": watched.model,
            "parameters": watched.identity.parameters,
            "form": SERVER,
            "revision": None,
            "context": watched.identity.context,
        },
        draft=None,
        device=watched.identity.software,
        dtype="unknown",
        versions=versions | ({"baseline": alone.identity.software} if alone else {}),
        threads=0,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        prefill_seconds={lane: {} for lane in engines},
        mode="sequential",
        source=watched.identity.software,
    )


def _end(
    lanes: dict[Lane, _Lane],
    reasons: dict[Lane, EndReason],
    settings: Settings,
    counted: Counted | None,
) -> End:
    found = Agreement()
    if BASELINE in lanes and settings.greedy:
        found = agreement_of(*(lanes[lane].emitted for lane in (SPECULATIVE, BASELINE)))
    return End(reasons, found.identical, found.compared, found.divergence, counted=counted)


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


def watched_pair(spec: WatchedSpec) -> Watched:
    """The engines of such a name. Raises `PairError` and `ServerError`."""
    addresses = [one for one in (spec.engine, spec.alone) if one is not None]
    engines = [recognised(server_address(one.url), one.model) for one in addresses]
    alone = engines[1] if engines[1:] else None
    if alone is not None and alone.identity.speculates:
        raise PairError(
            f"{alone.server.shown} speculates too: a baseline is a server of the target alone, "
            "so start it without speculation."
        )
    return Watched(engines[0].model, engines[0], alone)


def load_watched(spec: WatchedSpec, asked: Any) -> Watched:
    """The same as a source of pairs; no option of loading concerns it."""
    if asked.on_progress is not None:
        asked.on_progress(Progress("asking the server of the target"))
    return watched_pair(spec)


def recognised(address: ServerAddress, model: str) -> WatchedEngine:
    """The engine at an address, which has this model. Raises `ServerError`, and `PairError` if it
    does not have it."""
    server = Server(address)
    identity = identity_of(server, model)
    return (LlamaEngine if identity.engine == LLAMA_CPP else VllmEngine)(server, model, identity)
