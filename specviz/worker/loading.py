"""The pair in memory, which a worker loads by the name in a task."""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from ..base.errors import PairError
from ..base.variables import ANY_WITH_TOKEN
from ..core.events import RaceEvents
from ..core.lanes import LANES, Lane
from ..core.model_facts import changed_file
from ..core.settings import Settings
from ..files.memory import COUNTED_LANES, TYPICAL_CONTEXT, shown_bytes
from ..pairs.spec import ONLY_OPERATOR, ModelsSpec, NamedSpec, parse_pair
from ..pairs.table import named_pair

if TYPE_CHECKING:
    from ..files.progress import Progress, Watcher

LoadPair: TypeAlias = "Callable[[str, Watcher], Any]"
Race: TypeAlias = "Callable[[Any, str, Settings | Mapping[Lane, Settings]], RaceEvents]"


class Status(str, Enum):
    """Sentences for the visitor on which the page also acts. It compares them with `is`, so their
    words are free."""

    LOADING = "Loading the two models, which happens once."
    STARTUP = "Warming up the lanes and reading the prompt."

    def __str__(self) -> str:
        return self.value


class Models:
    """The pair in memory. There is only one at a time: two might not fit."""

    def __init__(self, load_pair: LoadPair, race: Race) -> None:
        self.race = race
        self._load_pair = load_pair
        self._name: str | None = None
        self._pair: Any = None

    def pair(self, name: str) -> Generator[str, None, Any]:
        """Return the pair of this name. Loading it first frees the old pair, and yields sentences
        about the progress. A pair whose file was written to is loaded again."""
        if name != self._name or _was_written_to(self._pair):
            yield Status.LOADING
            if self._pair is not None:
                self._name = None
                self._pair = None
                gc.collect()
            self._pair = yield from _loaded(self._load_pair, name)
            self._name = name
        return self._pair


def _was_written_to(pair: Any) -> bool:
    target = getattr(pair, "target", None)
    draft = getattr(pair, "draft", None)
    return any(map(changed_file, (target, draft)))


def _loaded(load_pair: LoadPair, name: str) -> Generator[str, None, Any]:
    """Load a pair in a thread, so that its progress can be yielded here meanwhile."""
    steps: queue.SimpleQueue[Progress | None] = queue.SimpleQueue()  # None: it has ended
    pair: Future[Any] = Future()

    def work() -> None:
        try:
            pair.set_result(load_pair(name, steps.put))
        except BaseException as error:
            pair.set_exception(error)
        steps.put(None)

    thread = threading.Thread(target=work, name="load", daemon=True)
    thread.start()
    try:
        for step in iter(steps.get, None):
            yield _sentence(step)
    finally:
        thread.join()  # a load cannot be interrupted, and must end before the next one
    return pair.result()


def _sentence(progress: Progress) -> str:
    step = progress.sentence[:1].upper() + progress.sentence[1:]
    if progress.fraction is not None:
        step += f": {progress.fraction:.0%}"
    return f"{step}{progress.left}."


WEIGHTS: dict[str, dict[str, str]] = {
    "usual": {},
    "bfloat16": {"dtype": "bfloat16"},
    "8bit": {"quantize": "8bit", "draft_quantize": "8bit"},
    "4bit": {"quantize": "4bit", "draft_quantize": "4bit"},
    "fp32": {"products": "fp32"},
}
"""Precisions of both models, and of the products of a target of few bits, as options of
`load_pair`."""


def with_weights(pair: str, weights: str) -> str:
    """The name under which a worker loads a pair in one of `WEIGHTS`."""
    if weights == "usual":
        return pair
    return f"{pair}@{weights}"


def pair_and_options(name: str) -> tuple[str, dict[str, str]]:
    """Split the name of a pair with weights: the pair's name, and options of `load_pair`."""
    pair, _, weights = name.rpartition("@")
    if weights in WEIGHTS:
        return pair, WEIGHTS[weights]
    return name, {}


def checked_name(name: str) -> str:
    """The name of a pair in a task. Raises `PairError` for an address: tasks come from visitors,
    and the operator's server is named `SERVED`."""
    if "://" in name:
        raise PairError(ONLY_OPERATOR)
    return name


@contextmanager
def token_of(pair: str) -> Iterator[None]:
    """Inside the block, send the operator's token to the hub only for pairs of the table. Visitors
    choose the names of other pairs: for these, the operator must allow it."""
    from ..files.hub import without_token

    if named_pair(pair) or ANY_WITH_TOKEN.read():
        yield
        return
    with without_token():
        yield


def load_named(name: str, watcher: Watcher) -> Any:
    """Load a pair with `load_pair`, which reports its progress to `watcher`, and its engines."""
    from ..core.engine_choice import lane_threads, make_engine, make_state_engine
    from ..core.pair import Pair
    from ..core.states import make_head_engine
    from ..files.progress import Progress
    from ..pairs.load import load_any  # imports torch

    pair, options = pair_and_options(checked_name(name))
    with token_of(pair):
        loaded = load_any(parse_pair(pair), on_progress=watcher, **options)
    if not isinstance(loaded, Pair):
        return loaded
    # The first time on a machine this takes some ten seconds, which no run should wait for.
    watcher(Progress("preparing the models' passes for this device"))
    engine = make_engine(loaded.target, loaded.vocab)
    if loaded.draft is not None:
        make_engine(loaded.draft, loaded.draft_vocab)
    elif loaded.head is not None:
        target = make_state_engine(loaded.target, loaded.vocab)
        make_head_engine(loaded.head, loaded.vocab, target)
    for lane in LANES:
        lane_threads(loaded, lane, engine)
    return loaded


def memory_in_numbers(name: str) -> str:
    """A sentence with the memory that a pair takes, as the doctor counts it; empty if unknown."""
    pair, options = pair_and_options(name)
    if not isinstance(parse_pair(pair), NamedSpec | ModelsSpec):
        return ""
    from ..pairs.doctor import examine

    with token_of(pair):
        memory = examine(pair, **options).memory  # type: ignore[arg-type]
    if not memory:
        return ""
    sizes = ", ".join(f"{shown_bytes(size)} as {kind}" for kind, size in memory.items())
    caches = f"caches of {TYPICAL_CONTEXT:,} tokens in {COUNTED_LANES} lanes"
    return f"Weights and {caches} take {sizes}."
