"""Running the models on ZeroGPU: loaded once at the start, then a GPU is lent for each task.

A function that `spaces.GPU` decorates runs in a forked process, and only that process sees the
GPU. What the function yields is pickled; what it changes stays in the forked process. Both lanes of
a race run in one call.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ..base.environment import BUILTIN
from ..base.errors import NoGpuError, PairError, SettingsError, SpecvizError
from ..base.variables import ANY_MODEL, LOCAL_MODELS, PAIR, PAIRS
from ..core.model_facts import parameter_bytes
from ..core.registry import drafter_kind
from ..pairs.opening import first_pair
from ..pairs.table import named_pair, operator_pairs
from .failures import is_fatal, sentence_of
from .loading import Models, Race
from .local import LocalWorker
from .tasks import RaceTask, SampleTask, Stop, Task

log = logging.getLogger(__name__)

ELSEWHERE = (
    "Only the pairs loaded at the start can run here, with their usual weights: choose one from "
    "the list."
)

# For the estimate of a call's seconds. All are on the safe side: a visitor pays only for the
# seconds that a call uses, but a call that takes longer than it asked for is killed. A small pass
# takes as long as it takes to launch its kernels.
START = 6.0  # seconds for a process and its CUDA context
WARMUP = 4.0  # seconds for both lanes, while libraries load their kernels
MOVED = 4e9  # bytes of weights moved onto the GPU per second
BLOCK = 1.2e-3  # seconds per block of a model in an eager pass
PASS = 3e-3  # seconds per pass for the rest: the head, the verdict, the copy to the host
READ = 1e12  # bytes of weights read per second in a pass
PROMPT = 2000.0  # tokens of the prompt read per second
MAX_CALL_SECONDS = 120  # seconds; about what a visitor without an account has for a day

BEAT = 0.05  # seconds between two lists of results

BUSY = "No GPU was free for this run: try again in a minute."
USED_UP = "Your GPU time is used up for now: try again {}."
UNKNOWN = "The GPU service gave an unexpected answer: try again in a minute."
SENTENCES = {
    "ZeroGPU queue timeout": BUSY,
    "ZeroGPU illegal duration": (
        "This run needs more GPU time than the limit for one visitor: choose a shorter length or "
        "fewer guesses per round."
    ),
    "ZeroGPU pending credits exceeded": (
        "Your other runs have reserved all of your GPU time: try again when one of them has ended."
    ),
    "ZeroGPU worker error": "The GPU was withdrawn before the run ended: try again.",
}
"""Sentences for the visitor, by the title of the error that `spaces` raises."""


@dataclass(frozen=True)
class CostEstimate:
    """Estimated times of a pair. target, draft: seconds of a one-token pass. start: seconds before
    a task begins."""

    target: float
    draft: float
    start: float

    @classmethod
    def of(cls, pair: Any) -> CostEstimate:
        """The estimate for a pair, from the sizes of its models."""
        models = [model for model in (pair.target, pair.draft, pair.head) if model is not None]
        size = sum(map(parameter_bytes, models))
        draft_seconds = 0.0
        if pair.draft is not None:
            draft_seconds = _pass_seconds(pair.draft)
        return cls(
            target=_pass_seconds(pair.target),
            draft=draft_seconds,
            start=START + size / MOVED,
        )


def call_seconds(task: RaceTask | SampleTask, cost: CostEstimate, prompt: int) -> float:
    """The seconds of GPU time to ask for if every guess is refused, at most `MAX_CALL_SECONDS`.

    prompt: tokens that each model reads before it writes.

        start + warm-up + turns * (length * (gamma * guess + 2 * target) + reading)

    `turns` is 1 for a race, and the draws per lane for an experiment. The target's pass counts
    twice per token, because both lanes make one. Each further lane of a race adds its guesses, a
    pass per token and its prefills.
    """
    settings = task.settings
    lanes = [settings]
    if isinstance(task, RaceTask) and task.lanes:
        lanes = list(task.lanes.values())
    turns = 1
    length = settings.max_new_tokens
    if isinstance(task, SampleTask):
        turns = task.draws
        length = task.length
        prompt = min(prompt, task.reach)
    guess_seconds = {"draft": cost.draft, "target": cost.target, "nothing": 0.0}
    drafts = []  # seconds of a round, by lane
    for lane in lanes:
        guess = guess_seconds[drafter_kind(lane.drafter).cost]
        drafts.append(lane.gamma * guess)
    # The target in all lanes, and a draft in all but one.
    prefills = 2 * len(lanes) + 1
    reading = prefills * (prompt / PROMPT + cost.target)
    passes = (len(lanes) + 1) * cost.target
    turn = length * (sum(drafts) + passes) + reading
    return min(cost.start + WARMUP + turns * turn, MAX_CALL_SECONDS)


def _pass_seconds(model: Any) -> float:
    blocks: int = model.config.get_text_config().num_hidden_layers
    return PASS + blocks * BLOCK + parameter_bytes(model) / READ


@dataclass(frozen=True)
class Failure:
    """The last result of a failed task. ZeroGPU passes on only the class name of an error that
    another process raises, so the sentence travels as a result.

    sentence: for the visitor. fatal: whether the process can never use the device again.
    """

    sentence: str
    fatal: bool = False


def lists_of_results(task: Task, models: Models, seconds: float) -> Iterator[list[Any]]:
    """The results of a task, as one list every `BEAT` seconds; a list may be empty.

    ZeroGPU can cancel a call only when it yields. So that a long pass of the models delays no
    list, the task runs in a thread. It is stopped after `seconds`, and when this generator
    is closed, which waits for the thread to end.
    """
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stop = Stop()
    deadline = time.monotonic() + seconds

    def work() -> None:
        try:
            for result in task.run(models, stop):
                results.put(result)
                if time.monotonic() > deadline:
                    stop.set()
        except Exception as error:
            if not isinstance(error, SpecvizError):
                log.exception("a task failed")
            results.put(Failure(sentence_of(error), is_fatal(error)))

    thread = threading.Thread(target=work, name="lanes", daemon=True)
    thread.start()
    try:
        while thread.is_alive() or not results.empty():
            thread.join(BEAT)
            yield [results.get() for _ in range(results.qsize())]
    finally:
        stop.set()
        thread.join()


class LoadedModels(Models):
    """The pairs of a fixed list, loaded before the first call: pairs that are loaded later do not
    reach a GPU."""

    def __init__(self, pairs: dict[str, Any], race: Race) -> None:
        super().__init__(lambda name, _: self.loaded(name), race)
        self.pairs = pairs
        self.costs = {name: CostEstimate.of(pair) for name, pair in pairs.items()}

    def loaded(self, name: str) -> Any:
        """The pair of this name. Raises `PairError` if it is not in the list."""
        if name not in self.pairs:
            raise PairError(ELSEWHERE)
        return self.pairs[name]

    def pair(self, name: str) -> Generator[str, None, Any]:
        yield from ()  # nothing is loaded, so there are no sentences
        return self.loaded(name)

    def prompt_tokens(self, task: RaceTask | SampleTask) -> int:
        """Tokens of a task's prompt. Raises `SpecvizError` if prompt or pair cannot be used."""
        pair = self.loaded(task.pair)
        chat = "auto"
        if isinstance(task, RaceTask):
            chat = task.settings.chat
        ids = pair.encode(task.prompt, chat=chat)
        return len(ids)


class ZeroGpuWorker(LocalWorker):
    """Runs races and experiments in decorated calls, and all other tasks in this process.

    A heartbeat comes with every empty list. A stop cancels the call, without an `End`.
    decorate: `spaces.GPU`.
    """

    def __init__(self, models: LoadedModels, decorate: Callable[..., Any]) -> None:
        self._models: LoadedModels = models
        here = os.getpid()

        def duration(task: RaceTask | SampleTask) -> int:
            cost = models.costs[task.pair]
            prompt_tokens = models.prompt_tokens(task)
            return math.ceil(call_seconds(task, cost, prompt_tokens))

        def call(task: RaceTask | SampleTask) -> Iterator[list[Any]]:
            # The start is over by now. A task that ends in time is not killed.
            seconds = duration(task) - models.costs[task.pair].start
            for results in lists_of_results(task, models, seconds):
                yield results
                # ZeroGPU would use this process again, although the device is lost to it.
                is_lost = any(isinstance(result, Failure) and result.fatal for result in results)
                if is_lost and os.getpid() != here:
                    os._exit(1)

        self._call = decorate(call, duration=duration)

    def run(self, task: Task, stop: Stop | None = None) -> Generator[Any, None, None]:
        if not isinstance(task, (RaceTask, SampleTask)):
            yield from super().run(task, stop)
            return
        self._models.prompt_tokens(task)  # a task that cannot run must not cost GPU time
        with closing(self._lists(task)) as lists:
            for results in lists:
                for result in results or [None]:
                    yield result
                    if stop is not None and stop.is_set():
                        return

    def _lists(self, task: Task) -> Generator[list[Any], None, None]:
        try:
            with closing(self._call(task)) as lists:
                for results in lists:
                    yield [result for result in results if not isinstance(result, Failure)]
                    if results and isinstance(results[-1], Failure):
                        raise SpecvizError(results[-1].sentence)
        except SpecvizError:
            raise
        except Exception as error:
            log.warning("no GPU for a task: %s: %s", getattr(error, "title", "?"), error)
            raise NoGpuError(sentence_for(error)) from error


def sentence_for(error: Exception) -> str:
    """The sentence for the visitor about a call that failed outside of the task itself."""
    title = getattr(error, "title", "")
    text = str(error)
    if title in SENTENCES:
        return SENTENCES[title]
    if "No GPU was available" in text:
        return BUSY
    if title == "ZeroGPU quota exceeded":
        wait = re.search(r"[Tt]ry again in ((?:\d+ days?, )?[\d:]+)", text)
        if wait:
            return USED_UP.format(f"in {wait[1]}")
        return USED_UP.format("later, or sign in to Hugging Face for more")
    if "token" in text:
        return "This page has been open too long to get a GPU: reload it."
    return UNKNOWN


def load_pairs() -> ZeroGpuWorker:
    """Load the built-in pair, the page's first one and those in SPECVIZ_PAIRS onto the GPU that
    calls will be lent.

    Call it in the main thread, before anything uses CUDA and before the page is launched: until
    then `spaces` emulates CUDA. Visitors can choose only these pairs. Raises `SettingsError` for a
    name that is not in the table, and `PairError` for a pair that cannot be loaded.
    """
    import spaces

    from ..core.race import race  # imports torch, which spaces must come before

    first = first_pair()
    if named_pair(first) is None:
        raise SettingsError(
            f"{PAIR.name} is {first!r}: use the name of a pair from the table on ZeroGPU."
        )
    names = [BUILTIN, first]
    names += [row.name for row in operator_pairs()]
    pairs = {name: _load_onto_gpu(name) for name in dict.fromkeys(names)}
    os.environ[PAIRS.name] = ",".join(pairs)
    os.environ.pop(ANY_MODEL.name, None)
    os.environ[LOCAL_MODELS.name] = "0"
    return ZeroGpuWorker(LoadedModels(pairs, race), spaces.GPU)


def _load_onto_gpu(name: str) -> Any:
    from ..core.pair import checked_pair
    from ..core.states import EAGLE
    from ..pairs.load import load_pair

    row = named_pair(name)
    assert row is not None
    # First into the processor's memory: spaces emulates CUDA in this thread alone, and transformers
    # loads onto a GPU from other threads.
    pair = checked_pair(load_pair(name, device="cpu", dtype=row.target.dtype))
    models: tuple[Any, ...] = (pair.target, pair.draft)
    for model in models:
        if model is not None:
            model.to("cuda")
    head: Any = pair.head
    if head is not None and head.kind == EAGLE:
        head.to("cuda")
        if head.embedding is not None:
            head.embedding = head.embedding.to("cuda")  # it may be the target's
    return pair
