"""Tasks that the process with the models can run. A task is pickled and sent there."""

from __future__ import annotations

import pickle  # nosec B403
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..base.environment import SERVED
from ..core.events import End, Event, RaceEvents
from ..core.lanes import BASELINE, LANES, SPECULATIVE, Lane
from ..core.settings import Settings
from ..inspect.equivalence import Comparison, Continuation, two_sample_chi_square
from ..inspect.parting import Difference, Parting
from ..measure.sweep.types import SweepRequest, SweepResult
from ..pairs.spec import operator_spec
from ..runs.trace import Trace
from .loading import Models, Status, checked_name, pair_and_options, token_of

Stop: TypeAlias = threading.Event
"""The caller of a task sets it so that the task ends soon."""

TURN = 2.0  # seconds of a sweep until others may use the models; it finishes its piece first


class Task(Protocol):
    """Work to do with a pair. pair: its name."""

    @property
    def pair(self) -> str: ...

    def run(self, models: Models, stop: Stop) -> Iterator[Any]:
        """Run the task and yield its results; texts among them are sentences for the visitor.

        After each result the task looks at `stop`. Once that is set, it yields no more than an
        `End`. Raises `SpecvizError`.
        """
        ...


@dataclass(frozen=True, slots=True)
class LoadTask:
    """Load a pair. It has no results but sentences."""

    pair: str

    def run(self, models: Models, stop: Stop) -> Iterator[str]:
        yield from models.pair(self.pair)


@dataclass(frozen=True, slots=True)
class RaceTask:
    """Race all lanes. The results are the events of the race.

    settings: of the first lane with drafts. lanes: of all such lanes by name, if there are several.
    """

    pair: str
    prompt: str
    settings: Settings
    lanes: Mapping[Lane, Settings] | None = None

    def run(self, models: Models, stop: Stop) -> Iterator[Event | str]:
        pair = yield from models.pair(self.pair)
        yield Status.STARTUP
        if stop.is_set():
            return
        race = models.race(pair, self.prompt, self.lanes or self.settings)
        with closing(race) as events:
            for event in events:
                yield event
                if stop.is_set():
                    yield from _end_of(events)
                    return


def _end_of(events: RaceEvents) -> Iterator[End]:
    """Tell a race to stop and yield its `End`, which says how each lane ended."""
    try:
        end = events.send(True)
    except StopIteration:
        return
    if isinstance(end, End):
        yield end


class Compared(NamedTuple):
    """The comparison of both samples, and the texts of their continuations by token ids. tokens:
    of the prompt, as each draw read it. shortened: whether the prompt has more tokens."""

    comparison: Comparison
    texts: dict[tuple[int, ...], str]
    tokens: int
    shortened: bool


@dataclass(frozen=True, slots=True)
class SampleTask:
    """Draw short continuations of a prompt, alternating between the lanes, and compare the lanes.

    The results are, after each turn, the number of continuations per lane, and at last a
    `Compared`. reach: the most tokens of the prompt that are read, counted from its end. length:
    tokens of a continuation.
    """

    pair: str
    prompt: str
    settings: Settings
    draws: int
    length: int
    reach: int

    def run(self, models: Models, stop: Stop) -> Iterator[Any]:
        from ..inspect.prove import draw_continuations  # imports torch

        pair = yield from models.pair(self.pair)
        ids = pair.encode(self.prompt)
        prompt_ids = ids[-self.reach :]
        generators: dict[Lane, Iterator[Continuation]] = {}
        drawn: dict[Lane, list[Continuation]] = {}
        for lane in LANES:
            generators[lane] = draw_continuations(
                pair, prompt_ids, self.settings, self.draws, self.length, lane
            )
            drawn[lane] = []
        for count in range(1, self.draws + 1):
            for lane, continuations in generators.items():
                drawn[lane].append(next(continuations))
            yield count
            if stop.is_set():
                return
        speculative = [draw.ids for draw in drawn[SPECULATIVE]]
        baseline = [draw.ids for draw in drawn[BASELINE]]
        texts: dict[tuple[int, ...], str] = {}
        for draws in drawn.values():
            for draw in draws:
                texts[draw.ids] = draw.text
        yield Compared(
            comparison=two_sample_chi_square(speculative, baseline),
            texts=texts,
            tokens=len(prompt_ids),
            shortened=len(ids) > self.reach,
        )


@dataclass(frozen=True, slots=True)
class ExamineTask:
    """Ask the doctor about a pair before any weights are downloaded. The result is its report."""

    pair: str

    def run(self, models: Models, stop: Stop) -> Iterator[dict[str, Any]]:
        from ..pairs.doctor import examine, examine_pair

        pair, options = pair_and_options(checked_name(self.pair))
        if pair == SERVED:
            yield examine_pair(operator_spec()).to_dict()
            return
        with token_of(pair):
            report = examine(pair, **options)  # type: ignore[arg-type]
        yield report.to_dict()


class Host(NamedTuple):
    """The device that runs models. free: bytes of free memory. cpu: whether it is a processor."""

    free: int
    cpu: bool


@dataclass(frozen=True, slots=True)
class MachineTask:
    """Look at the device. The result is a `Host`."""

    pair: str = ""

    def run(self, models: Models, stop: Stop) -> Iterator[Host]:
        from ..files.memory import device_memory

        devices = device_memory()
        yield Host(
            free=sum(memory.free for memory in devices),
            cpu=devices[0].device.type == "cpu",
        )


@dataclass(frozen=True, slots=True)
class DifferenceTask:
    """Say whether a difference is a tie. The results are sentences, and at last a `Difference`."""

    pair: str
    parting: Parting

    def run(self, models: Models, stop: Stop) -> Iterator[str | Difference]:
        from ..inspect.difference import examined  # imports torch

        pair = yield from models.pair(self.pair)
        for sentence_or_answer in examined(pair, self.parting):
            yield sentence_or_answer
            if stop.is_set():
                return


class RerunReport(NamedTuple):
    """The result of a recording's second run. lines: the answer, then the differences."""

    same: bool
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RerunTask:
    """Run a recording once more. The results are sentences, and at last a `RerunReport`.

    recorded: without lists of likeliest tokens, which are then not compared.
    """

    pair: str
    recorded: Trace

    def run(self, models: Models, stop: Stop) -> Iterator[str | RerunReport]:
        from ..runs.rerun import compared, rerun_events, rerun_lines  # imports torch

        pair = yield from models.pair(self.pair)
        yield Status.STARTUP
        events = []
        for event in rerun_events(self.recorded.header, pair):
            events.append(event)
            if stop.is_set():
                return
        comparison = compared(self.recorded, Trace.from_events(events), lists=False)
        yield RerunReport(comparison.same, tuple(rerun_lines(comparison)))


class SweepCheckpoint(NamedTuple):
    """A sweep between two pieces. state: the pickled sweep, for the next task; only the models'
    process can read it. done: whether no piece is left. result: of the pieces so far."""

    state: bytes
    done: bool
    result: SweepResult


@dataclass(frozen=True, slots=True)
class SweepTask:
    """Run pieces of a sweep for about `seconds`. The results are the sweep's events, and a
    `SweepCheckpoint` after each piece.

    state: of the checkpoint to continue from; empty for a new sweep.
    """

    pair: str
    request: SweepRequest
    state: bytes = b""
    seconds: float = TURN

    def run(self, models: Models, stop: Stop) -> Iterator[Any]:
        from ..measure.sweep.sweep import Sweep  # imports torch

        pair = yield from models.pair(self.pair)
        if self.state:
            # Only this process writes such states; visitors cannot send them.
            sweep = pickle.loads(self.state)  # nosec B301
        else:
            yield Status.STARTUP
            sweep = Sweep(self.request)
        end = time.monotonic() + self.seconds
        while not (sweep.is_done or stop.is_set()):
            yield from sweep.advance(pair, stop.is_set)
            if stop.is_set():
                return
            yield SweepCheckpoint(pickle.dumps(sweep), sweep.is_done, sweep.result())
            if time.monotonic() >= end:
                return
