"""Tasks: what the process that holds the models can do. A task is pickled and sent there."""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ..environment import ANY_WITH_TOKEN
from ..models.catalogue import named_pair
from ..models.sizes import LANES as COUNTED
from ..models.sizes import TYPICAL_CONTEXT, shown_bytes
from ..report.equivalence import Comparison, Continuation, two_sample_chi_square
from ..settings import Settings
from ..trace import LANES, End, Event, Lane

if TYPE_CHECKING:
    from ..models.progress import Progress, Watcher

Stop: TypeAlias = threading.Event
"""The caller of a task sets it so that the task ends soon."""

Load: TypeAlias = "Callable[[str, Watcher], Any]"
Race: TypeAlias = "Callable[[Any, str, Settings | Mapping[Lane, Settings]], Iterator[Event]]"

LOADING = "Loading the two models: this happens once."
READING = "Warming the lanes up and reading the prompt."


class Models:
    """The pair in memory. There is only one at a time: two might not fit."""

    def __init__(self, load: Load, race: Race) -> None:
        self.race = race
        self._load = load
        self._name: str | None = None
        self._pair: Any = None

    def pair(self, name: str) -> Generator[str, None, Any]:
        """Return the pair of this name. If it must be loaded first, which frees the old one,
        yield sentences that say how far that is."""
        if name != self._name:
            yield LOADING
            self._name, self._pair = None, None
            gc.collect()
            self._pair = yield from _loaded(self._load, name)
            self._name = name
        return self._pair


def _loaded(load: Load, name: str) -> Generator[str, None, Any]:
    """Load a pair in a thread, so that its progress can be yielded here meanwhile."""
    steps: queue.SimpleQueue[Progress | None] = queue.SimpleQueue()
    pair: Future[Any] = Future()

    def work() -> None:
        try:
            pair.set_result(load(name, steps.put))
        except BaseException as error:
            pair.set_exception(error)
        steps.put(None)

    thread = threading.Thread(target=work, name="load", daemon=True)
    thread.start()
    try:
        while (step := steps.get()) is not None:
            yield _sentence(step)
    finally:
        thread.join()  # a load cannot be interrupted, and the next one must not begin beside it
    return pair.result()


def _sentence(progress: Progress) -> str:
    done = "" if progress.fraction is None else f": {progress.fraction:.0%}"
    return f"{progress.sentence[:1].upper()}{progress.sentence[1:]}{done}."


WEIGHTS: dict[str, dict[str, str]] = {
    "usual": {},
    "bfloat16": {"dtype": "bfloat16"},
    "8bit": {"quantize": "8bit", "draft_quantize": "8bit"},
    "4bit": {"quantize": "4bit", "draft_quantize": "4bit"},
}
"""The precisions in which both models can be loaded, as options of `load_pair`."""


def with_weights(pair: str, weights: str) -> str:
    """The name under which the tasks of this module load a pair in one of `WEIGHTS`."""
    return pair if weights == "usual" else f"{pair}@{weights}"


def pair_and_options(name: str) -> tuple[str, dict[str, str]]:
    """A pair's own name, and the options of `load_pair`, in a name of `with_weights`."""
    pair, _, weights = name.rpartition("@")
    return (pair, WEIGHTS[weights]) if weights in WEIGHTS else (name, {})


@contextmanager
def _token_of(pair: str) -> Iterator[None]:
    """Inside the block, the operator's token is sent to the hub for pairs of the table alone: for
    others, whose names come from visitors, only if the operator says so."""
    from ..models.hub import without_token  # imports torch

    with nullcontext() if named_pair(pair) or ANY_WITH_TOKEN.read() else without_token():
        yield


def load_named(name: str, watcher: Watcher) -> Any:
    """Load a pair with `load_pair`, which reports its progress to `watcher`, and its engines."""
    from ..decoding.loop import lane_threads
    from ..engines.choose import make_engine, make_head_engine, make_state_engine
    from ..models.load import load_pair  # imports torch
    from ..models.progress import Progress
    from ..models.watched import Watched

    pair, options = pair_and_options(name)
    with _token_of(pair):
        loaded = load_pair(pair, on_progress=watcher, **options)
    if isinstance(loaded, Watched):
        return loaded
    # The first time on a machine this takes some ten seconds, which no run is to wait for.
    watcher(Progress("preparing the models' passes for this device"))
    make_engine(loaded.target, loaded.vocab)
    if loaded.draft is not None:
        make_engine(loaded.draft, loaded.draft_vocab)
    elif loaded.head is not None:
        target = make_state_engine(loaded.target, loaded.vocab)
        make_head_engine(loaded.head, loaded.vocab, target)
    for lane in LANES:
        lane_threads(loaded, lane)
    return loaded


def memory_in_numbers(name: str) -> str:
    """A sentence with the memory that a pair takes, by the doctor's count; empty if unknown."""
    pair, options = pair_and_options(name)
    if named_pair(pair) is None and "+" not in pair:
        return ""
    from ..models.doctor import examine

    with _token_of(pair):
        memory = examine(pair, **options).memory  # type: ignore[arg-type]
    sizes = ", ".join(f"{shown_bytes(size)} as {kind}" for kind, size in memory.items())
    caches = f"caches of {TYPICAL_CONTEXT:,} tokens in {COUNTED} lanes"
    return sizes and f"Weights, and {caches}, take {sizes}."


class Task(Protocol):
    """Something to do with a pair. pair: its name."""

    @property
    def pair(self) -> str: ...

    def run(self, models: Models, stop: Stop) -> Iterator[Any]:
        """Do it and yield the results; texts among them are sentences for the visitor.

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

    settings: of the first lane with drafts. lanes: of all such lanes by name, if there are
    several. memory: earlier texts, as ids, that drafts may come from.
    """

    pair: str
    prompt: str
    settings: Settings
    lanes: Mapping[Lane, Settings] | None = None
    memory: Sequence[Sequence[int]] = ()

    def run(self, models: Models, stop: Stop) -> Iterator[Event | str]:
        pair = yield from models.pair(self.pair)
        yield READING
        if stop.is_set():
            return
        settings = self.lanes or self.settings
        more = {"memory": self.memory} if self.memory else {}
        race = models.race(pair, self.prompt, settings, **more)
        with closing(race) as events:  # type: ignore[type-var]
            for event in events:
                yield event
                if stop.is_set():
                    yield from _end_of(events)
                    return


def _end_of(events: Iterator[Event]) -> Iterator[End]:
    """Tell a race to stop and yield its `End`, which says how each lane ended."""
    try:
        end = events.send(True)  # type: ignore[attr-defined]
    except StopIteration:
        return
    if isinstance(end, End):
        yield end


class Read(NamedTuple):
    """How many tokens of the prompt each draw reads, and whether the prompt has more."""

    tokens: int
    shortened: bool


class Drawn(NamedTuple):
    """How many continuations each lane has drawn so far."""

    draws: int


class Compared(NamedTuple):
    """The comparison of both samples, and the texts of their continuations by token ids."""

    comparison: Comparison
    texts: dict[tuple[int, ...], str]


@dataclass(frozen=True, slots=True)
class SampleTask:
    """Draw short continuations of a prompt, one in each lane by turns, and compare the lanes.

    The results are a `Read`, a `Drawn` after each turn and a `Compared`.
    reach: the most tokens of the prompt, from its end, that are read. length: tokens of a
    continuation.
    """

    pair: str
    prompt: str
    settings: Settings
    draws: int
    length: int
    reach: int

    def run(self, models: Models, stop: Stop) -> Iterator[Any]:
        from ..decoding.continuations import draw_continuations  # imports torch

        pair = yield from models.pair(self.pair)
        ids = pair.encode(self.prompt)
        yield Read(min(len(ids), self.reach), len(ids) > self.reach)
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
            yield Drawn(count)
            if stop.is_set():
                return
        ours, theirs = ([one.ids for one in drawn[lane]] for lane in LANES)
        texts = {one.ids: one.text for draws in drawn.values() for one in draws}
        yield Compared(two_sample_chi_square(ours, theirs), texts)


@dataclass(frozen=True, slots=True)
class ExamineTask:
    """Ask the doctor about a pair before any weights are downloaded. The result is its report."""

    pair: str

    def run(self, models: Models, stop: Stop) -> Iterator[dict[str, Any]]:
        from ..models.doctor import examine, examine_served
        from ..models.served import served_address

        pair, options = pair_and_options(self.pair)
        if (address := served_address(pair)) is not None:
            yield examine_served(address).to_dict()
            return
        with _token_of(pair):
            report = examine(pair, **options)  # type: ignore[arg-type]
        yield report.to_dict()


class Machine(NamedTuple):
    """Where models run. free: bytes of memory for them. cpu: whether that is a processor."""

    free: int
    cpu: bool


@dataclass(frozen=True, slots=True)
class MachineTask:
    """Look at the device. The result is a `Machine`."""

    pair: str = ""

    def run(self, models: Models, stop: Stop) -> Iterator[Machine]:
        from ..models.memory import device_memory

        devices = device_memory()
        yield Machine(sum(one.free for one in devices), devices[0].device.type == "cpu")
