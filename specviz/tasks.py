"""What can be asked of the process that holds the models. Tasks travel to it, results come back."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from .sameness import Comparison, Continuation, two_sample_chi_square
from .settings import Settings
from .trace import LANES, Event, Lane

Take: TypeAlias = Callable[[Any], bool]
"""Receives one result; False asks the task to end soon."""

Load: TypeAlias = Callable[[str], Any]
Race: TypeAlias = Callable[[Any, str, Settings], Iterator[Event]]

LOADING = "Loading the two models: this happens once."


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
            self._pair = self._load(name)
            self._name = name
        return self._pair


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
        with closing(models.race(pair, self.prompt, self.settings)) as events:  # type: ignore[type-var]
            for event in events:
                if not take(event):
                    return


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
        from .continuations import draw_continuations  # it brings torch

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
