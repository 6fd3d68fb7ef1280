"""The models on ZeroGPU: placed once at the start, then lent a GPU for one call per task.

A call of a function that `spaces.GPU` decorates runs in a forked process, which alone sees the
GPU: what it yields is pickled, and what it changes stays there. Both lanes run inside one call.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ..environment import ANY_MODEL, BUILTIN, PAIRS
from ..errors import NoGpuError, PairError, SpecvizError
from ..models.catalogue import named_pair
from ..models.sizes import parameter_bytes
from ..settings import Settings
from .batches import Failed, batches
from .client import Asking, LocalWorker
from .tasks import Models, Race, RaceTask, SampleTask, Take, Task

log = logging.getLogger(__name__)

ELSEWHERE = (
    "Only the pairs that were loaded at the start can run here, with their usual weights: choose "
    "one of the list."
)

# Seconds of a call, on the safe side: a visitor pays for those used, but a call that takes longer
# than it asked for is killed. Small passes cost what it takes to launch their kernels.
START = 6.0  # a process and its CUDA context
WARMUP = 4.0  # of both lanes, in which libraries load their kernels
MOVED = 4e9  # bytes of weights a second onto the GPU
BLOCK = 1.2e-3  # of a model, in an eager pass
PASS = 3e-3  # around the blocks: the head, the verdict, the way back to the host
READ = 1e12  # bytes of weights a second in a pass
PROMPT = 2000.0  # tokens of the prompt a second
MOST = 120  # about what a visitor without an account has for a day

BUSY = "No GPU was free for this run: try again in a minute."
UNKNOWN = "The GPU service did not answer as it should: try again in a minute."
SENTENCES = {
    "ZeroGPU queue timeout": BUSY,
    "ZeroGPU illegal duration": (
        "This run asks for more GPU time than one visitor may have: choose a shorter length or "
        "fewer guesses per round."
    ),
    "ZeroGPU pending credits exceeded": (
        "Your other runs hold all of your GPU time: try again when one of them has ended."
    ),
    "ZeroGPU worker error": "The GPU was taken away before the run had ended: try again.",
}
"""What to tell a visitor, by the title of the error that `spaces` raises."""


@dataclass(frozen=True)
class Prices:
    """What a pair costs. target, draft: seconds of a one-token pass. start: seconds before a task
    begins."""

    target: float
    draft: float
    start: float

    @classmethod
    def of(cls, pair: Any) -> Prices:
        """The prices of a pair, from the sizes of its models."""
        moved = parameter_bytes(pair.target) + parameter_bytes(pair.draft)
        start = START + moved / MOVED
        return cls(_pass_seconds(pair.target), _pass_seconds(pair.draft), start)


def call_seconds(task: RaceTask | SampleTask, prices: Prices, prompt: int) -> float:
    """For how long a GPU is asked for, as if every guess were refused; at most `MOST`.

    prompt: tokens that each model reads before it writes.

        start + warm-up + turns * (length * (gamma * guess + 2 * target) + reading)

    turns is 1 for a race, and the draws of each lane for an experiment; the target's passes count
    twice, for both lanes make one per token.
    """
    settings = task.settings
    turns, length = 1, settings.max_new_tokens
    if isinstance(task, SampleTask):
        turns, length, prompt = task.draws, task.length, min(prompt, task.reach)
    guesses = settings.gamma * _guess_seconds(settings, prices)
    reading = 3 * (prompt / PROMPT + prices.target)  # the target in both lanes, and the draft
    turn = length * (guesses + 2 * prices.target) + reading
    return min(prices.start + WARMUP + turns * turn, MOST)


def _guess_seconds(settings: Settings, prices: Prices) -> float:
    if settings.drafter == "model":
        return prices.draft
    return prices.target if settings.drafter == "early-exit" else 0.0


def _pass_seconds(model: Any) -> float:
    blocks: int = model.config.get_text_config().num_hidden_layers
    return PASS + blocks * BLOCK + parameter_bytes(model) / READ


class Placed(Models):
    """The pairs of a fixed list, loaded before the first call: later ones reach no GPU."""

    def __init__(self, pairs: dict[str, Any], race: Race) -> None:
        super().__init__(lambda name, _: self.pair(name, lambda item: True), race)
        self.pairs = pairs
        self.prices = {name: Prices.of(pair) for name, pair in pairs.items()}

    def pair(self, name: str, take: Take) -> Any:
        if name not in self.pairs:
            raise PairError(ELSEWHERE)
        return self.pairs[name]


class ZeroGpuWorker(LocalWorker):
    """Runs races and experiments in decorated calls, and all other tasks in this process.

    decorate: `spaces.GPU`.
    """

    def __init__(self, models: Placed, decorate: Callable[..., Any]) -> None:
        self._models: Placed = models
        here = os.getpid()

        def asked(task: RaceTask | SampleTask) -> int:
            prices = models.prices[task.pair]
            return math.ceil(call_seconds(task, prices, _prompt_tokens(task, models)))

        def lent(task: RaceTask | SampleTask) -> Iterator[list[Any]]:
            # The start is over by now. Whoever ends in time is not killed.
            for items in batches(task, models, asked(task) - models.prices[task.pair].start):
                yield items
                if items and getattr(items[-1], "fatal", False) and os.getpid() != here:
                    os._exit(1)  # the process would be used again, and the device cannot be

        self._lent = decorate(lent, duration=asked)

    def run(self, task: Task, take: Take) -> None:
        if not isinstance(task, (RaceTask, SampleTask)):
            super().run(task, take)
            return
        _prompt_tokens(task, self._models)  # what cannot run takes nobody's GPU time
        with closing(self._lists(task)) as lists:
            for items in lists:
                # Even where there are none: this is the moment at which a call can be cancelled.
                if isinstance(take, Asking) and take.wish() != "go on":
                    return
                if not all(map(take, items)):
                    return

    def _lists(self, task: Task) -> Generator[list[Any], None, None]:
        try:
            with closing(self._lent(task)) as lists:
                for items in lists:
                    yield [item for item in items if not isinstance(item, Failed)]
                    if items and isinstance(items[-1], Failed):
                        raise SpecvizError(items[-1].sentence)
        except SpecvizError:
            raise
        except Exception as error:
            log.warning("no GPU for a task: %s: %s", getattr(error, "title", "?"), error)
            raise NoGpuError(sentence_for(error)) from error


def _prompt_tokens(task: RaceTask | SampleTask, models: Models) -> int:
    """Raises `SpecvizError` if the prompt, or the pair, cannot be used."""
    pair = models.pair(task.pair, lambda item: True)
    chat = task.settings.chat if isinstance(task, RaceTask) else "auto"
    return len(pair.encode(task.prompt, chat=chat))


def sentence_for(error: Exception) -> str:
    """What to tell a visitor whose call failed outside of the task itself."""
    title, said = getattr(error, "title", ""), str(error)
    if title in SENTENCES:
        return SENTENCES[title]
    if "No GPU was available" in said:
        return BUSY
    if title == "ZeroGPU quota exceeded":
        when = re.search(r"[Tt]ry again in ((?:\d+ days?, )?[\d:]+)", said)
        later = f"in {when[1]}" if when else "later, or sign in to Hugging Face for more"
        return f"The GPU time that you may use for now is used up: try again {later}."
    if "token" in said:
        return "This page has been open for too long to be lent a GPU: reload it."
    return UNKNOWN


def place_pairs() -> ZeroGpuWorker:
    """Load the built-in pair and those in SPECVIZ_PAIRS onto the GPU that calls will be lent.

    To be called in the main thread, before anything touches CUDA and before the page is launched:
    there `spaces` stands in for CUDA. Visitors choose among these pairs and no others. Raises
    `PairError` for a name that the table does not hold.
    """
    import spaces

    from ..decoding.race import race  # it brings torch, which spaces must come before

    pairs = {name: _placed_pair(name) for name in dict.fromkeys((BUILTIN, *PAIRS.read()))}
    os.environ[PAIRS.name] = ",".join(pairs)
    os.environ.pop(ANY_MODEL.name, None)
    return ZeroGpuWorker(Placed(pairs, race), spaces.GPU)


def _placed_pair(name: str) -> Any:
    from ..models.load import load_pair

    row = named_pair(name)
    if row is None:
        raise PairError(f"{PAIRS.name} names {name!r}, which is no pair of the table.")
    # By way of the processor: spaces stands in for CUDA in this thread alone, and transformers
    # would load onto a GPU in others.
    pair = load_pair(name, device="cpu", dtype=row.target.dtype)
    for model in (pair.target, pair.draft):
        model.to("cuda")
    return pair
