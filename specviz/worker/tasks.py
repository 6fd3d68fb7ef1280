"""What can be asked of the process that holds the models. Tasks travel to it, results come back."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ..models.catalogue import named_pair
from ..models.sizes import TYPICAL_CONTEXT, shown_bytes
from ..report.equivalence import Comparison, Continuation, two_sample_chi_square
from ..settings import Settings
from ..trace import LANES, End, Event, Lane

if TYPE_CHECKING:
    from ..models.progress import Progress, Watcher

Take: TypeAlias = Callable[[Any], bool]
"""Receives one result; False asks the task to end soon."""

Load: TypeAlias = "Callable[[str, Watcher], Any]"
Race: TypeAlias = Callable[[Any, str, Settings], Iterator[Event]]

LOADING = "Loading the two models: this happens once."
READING = "Warming both lanes up and reading the prompt."


class Models:
    """The pair in memory. There is one at a time: two might not fit."""

    def __init__(self, load: Load, race: Race) -> None:
        self.race = race
        self._load = load
        self._name: str | None = None
        self._pair: Any = None

    def pair(self, name: str, take: Take) -> Any:
        """The pair of this name. Before it is loaded, `take` hears so and the old one is freed."""
        if name != self._name:
            take(LOADING)
            self._name, self._pair = None, None
            gc.collect()
            self._pair = self._load(name, lambda progress: _say(progress, take))
            self._name = name
        return self._pair


WEIGHTS: dict[str, dict[str, str]] = {
    "usual": {},
    "bfloat16": {"dtype": "bfloat16"},
    "8bit": {"quantize": "8bit", "draft_quantize": "8bit"},
    "4bit": {"quantize": "4bit", "draft_quantize": "4bit"},
}
"""In how many bits both models may be loaded, as `load_pair` takes it."""


def with_weights(pair: str, weights: str) -> str:
    """The name of a pair whose weights are loaded so, for the tasks of this module."""
    return pair if weights == "usual" else f"{pair}@{weights}"


def _parted(name: str) -> tuple[str, dict[str, str]]:
    pair, _, weights = name.rpartition("@")
    return (pair, WEIGHTS[weights]) if weights in WEIGHTS else (name, {})


def load_named(name: str, watcher: Watcher) -> Any:
    """A pair as `load_pair` loads it, its progress told to `watcher`."""
    from ..models.load import load_pair  # it brings torch

    pair, options = _parted(name)
    return load_pair(pair, on_progress=watcher, **options)


def memory_in_numbers(name: str) -> str:
    """What a pair takes by the doctor's count, as a sentence; empty if that is not known."""
    pair, options = _parted(name)
    if named_pair(pair) is None and "+" not in pair:
        return ""
    from ..models.doctor import examine

    memory = examine(pair, **options).memory  # type: ignore[arg-type]
    sizes = ", ".join(f"{shown_bytes(size)} as {kind}" for kind, size in memory.items())
    return sizes and f"Weights and caches of {TYPICAL_CONTEXT:,} tokens take {sizes}."


def _say(progress: Progress, take: Take) -> None:
    done = "" if progress.fraction is None else f": {progress.fraction:.0%}"
    take(f"{progress.sentence[:1].upper()}{progress.sentence[1:]}{done}.")


class Task(Protocol):
    """Something to do with the pair of a name, in whatever process holds it."""

    @property
    def pair(self) -> str: ...

    def run(self, models: Models, take: Take) -> None:
        """Hand each result to `take` until all are out or it says False.

        Results that are texts are sentences for the visitor. Raises `SpecvizError`.
        """
        ...


@dataclass(frozen=True, slots=True)
class LoadTask:
    """Have a pair ready. No results."""

    pair: str

    def run(self, models: Models, take: Take) -> None:
        models.pair(self.pair, take)


@dataclass(frozen=True, slots=True)
class RaceTask:
    """Race both lanes; the results are the race's events."""

    pair: str
    prompt: str
    settings: Settings

    def run(self, models: Models, take: Take) -> None:
        pair = models.pair(self.pair, take)
        if not take(READING):
            return
        with closing(models.race(pair, self.prompt, self.settings)) as events:  # type: ignore[type-var]
            for event in events:
                if not take(event):
                    _take_end(events, take)
                    return


def _take_end(events: Iterator[Event], take: Take) -> None:
    """Tell a race to stop and hand out its end, which knows what each lane had come to."""
    send = getattr(events, "send", None)
    if send is None:
        return
    with suppress(StopIteration):
        end = send(True)
        if isinstance(end, End):
            take(end)


class Read(NamedTuple):
    """How many tokens of the prompt every draw begins with, and whether that is not all."""

    tokens: int
    shortened: bool


class Drawn(NamedTuple):
    """How many continuations each lane has drawn so far."""

    draws: int


class Compared(NamedTuple):
    """Both samples against each other, and the texts of their continuations by ids."""

    comparison: Comparison
    texts: dict[tuple[int, ...], str]


@dataclass(frozen=True, slots=True)
class SampleTask:
    """Draw short continuations of a prompt, one in each lane by turns, and compare the lanes.

    The results are a `Read`, a `Drawn` after each turn and a `Compared`.
    reach: tokens of the prompt's end that are read. length: tokens of a continuation.
    """

    pair: str
    prompt: str
    settings: Settings
    draws: int
    length: int
    reach: int

    def run(self, models: Models, take: Take) -> None:
        from ..decoding.continuations import draw_continuations  # it brings torch

        pair = models.pair(self.pair, take)
        ids = pair.encode(self.prompt)
        take(Read(min(len(ids), self.reach), len(ids) > self.reach))
        drawing: dict[Lane, Iterator[Continuation]] = {
            lane: draw_continuations(
                pair, ids[-self.reach :], self.settings, self.draws, self.length, lane
            )
            for lane in LANES
        }
        drawn: dict[Lane, list[Continuation]] = {lane: [] for lane in LANES}
        for count in range(1, self.draws + 1):
            for lane, draws in drawing.items():
                drawn[lane].append(next(draws))
            if not take(Drawn(count)):
                return
        ours, theirs = ([one.ids for one in drawn[lane]] for lane in LANES)
        texts = {one.ids: one.text for draws in drawn.values() for one in draws}
        take(Compared(two_sample_chi_square(ours, theirs), texts))


@dataclass(frozen=True, slots=True)
class ExamineTask:
    """Ask the doctor about a pair before any weights are fetched; the result is its report."""

    pair: str

    def run(self, models: Models, take: Take) -> None:
        from ..models.doctor import examine

        pair, options = _parted(self.pair)
        take(examine(pair, **options).to_dict())  # type: ignore[arg-type]


class Machine(NamedTuple):
    """What models may run on. free: bytes that it can take. cpu: whether that is a processor."""

    free: int
    cpu: bool


@dataclass(frozen=True, slots=True)
class MachineTask:
    """Look at the device; the result is a `Machine`."""

    pair: str = ""

    def run(self, models: Models, take: Take) -> None:
        from ..models.memory import device_memory

        devices = device_memory()
        take(Machine(sum(one.free for one in devices), devices[0].device.type == "cpu"))
