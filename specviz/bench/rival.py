"""The lanes against llama.cpp on the same models and prompts, in turn, each at its best."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from tqdm import tqdm

from ..core.events import Round
from ..decoding.loop import decode
from ..engines.threads import thread_counts
from ..errors import PairError
from ..lanes import LANE_LABELS, LANES, Lane
from ..models.pair import Pair
from ..runs.uncertainty import Spread, spread
from ..settings import Settings
from .gguf import KINDS
from .llama_cpp import LlamaCpp
from .measure import all_with

HERE = "specviz"
RIVAL = "llama.cpp {}"  # with the type of its weights
DRAFTED = (2, 3)  # tokens per round that llama.cpp also tries; 3 is its default


@dataclass(frozen=True, slots=True)
class Way:
    """One way to write a text. who: `HERE`, `RIVAL`, or a server and how it was timed. threads: 0
    where a server does not tell. gamma: drafted tokens per round, 0 for the target alone and where
    it is not told. draft_threads: of the draft, where it is told a number of its own."""

    who: str
    lane: Lane
    threads: int
    gamma: int
    draft_threads: int | None = None

    def __str__(self) -> str:
        drafts = f", drafts of {self.gamma}" if self.gamma else ""
        threads = (
            f", {self.threads} thread{'s' if self.threads > 1 else ''}" if self.threads else ""
        )
        if self.draft_threads:
            threads += f" ({self.draft_threads} for the draft)"
        return f"{LANE_LABELS[self.lane]}, {self.who}{threads}{drafts}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was measured on `prompts` prompts.

    rates: tokens per second without prefill, by way; the samples of all ways are in one order.
    same_texts: the number of prompts to which each rival wrote the text that was written here.
    parted: for the other prompts, where it is known, at which token the texts part, from 0.
    """

    rates: dict[Way, list[float]]
    same_texts: dict[str, int]
    prompts: int
    parted: dict[str, list[int]] = field(default_factory=dict)

    def best(self, whos: Sequence[str], lane: Lane | None = None) -> Way:
        """The way with the highest median among these names, of one lane or of both."""
        ways = [w for w in self.rates if w.who in whos and lane in (None, w.lane)]
        return max(ways, key=self.median)

    def median(self, way: Way) -> float:
        return spread(self.rates[way]).median

    def ratio(self, one: Way, other: Way) -> Spread:
        """The rate of `one` over that of `other`, sample by sample."""
        pairs = zip(self.rates[one], self.rates[other], strict=True)
        return spread(a / b for a, b in pairs)


def compare_with_llama_cpp(
    folder: Path, pair: Pair, prompts: Sequence[str], settings: Settings, repeats: int
) -> Comparison:
    """Write every prompt greedily in every way, `repeats` times, all ways in turn on each prompt.

    folder: llama.cpp's programs. They read copies of the models, in bf16 and in fp32, and draft
    as many tokens as the lane here, or `DRAFTED`, with as many threads as the target or one.
    Raises `SpecvizError`.
    """
    settings = replace(settings, temperature=0.0, ignore_eos=True, chat="off")
    if pair.draft is None or pair.device.type != "cpu" or not settings.gamma:
        raise PairError("--rival compares a target and a draft on a processor: choose such a pair.")
    rates: dict[Way, list[float]] = defaultdict(list)
    same: dict[str, set[str]] = {RIVAL.format(kind): set() for kind in KINDS}
    with tempfile.TemporaryDirectory() as place:
        rival = LlamaCpp(folder, pair, prompts, Path(place))
        for way in own_ways(settings):  # what is compiled or allocated once is not measured
            own_run(pair, prompts[0], settings, way)
        for prompt in tqdm(repeats * list(prompts), unit="prompt", disable=None, leave=False):
            text = ""
            for way in own_ways(settings):
                rate, tokens = own_run(pair, prompt, settings, way)
                rates[way].append(rate)
                text = "".join(tokens)
            for way, rate, other in _rival_runs(rival, pair, prompt, settings):
                rates[way].append(rate)
                if other is not None and other.strip().startswith((prompt + text).strip()):
                    same[way.who].add(prompt)
    return Comparison(dict(rates), {who: len(texts) for who, texts in same.items()}, len(prompts))


def own_ways(settings: Settings) -> list[Way]:
    """Both lanes with every number of threads."""
    gamma: dict[Lane, int] = {"baseline": 0, "speculative": settings.gamma}
    return [Way(HERE, lane, n, gamma[lane]) for n in thread_counts() for lane in LANES]


def own_run(pair: Pair, prompt: str, settings: Settings, way: Way) -> tuple[float, list[str]]:
    """A lane's tokens per second without prefill, on its own clock, and the texts of its tokens."""
    ids = pair.encode(prompt, chat=settings.chat)
    with all_with(way.threads):
        events = list(decode(pair, ids, settings, way.lane))
    rounds = [event for event in events if isinstance(event, Round)]
    tokens = [token for one in rounds for token in one.emitted]
    return len(tokens) / rounds[-1].clock, [token.text for token in tokens]


def _rival_runs(
    rival: LlamaCpp, pair: Pair, prompt: str, settings: Settings
) -> Iterator[tuple[Way, float, str | None]]:
    """Every way of llama.cpp with its rate, and the prompt with its text where it writes one."""
    count, context = settings.max_new_tokens, len(pair.encode(prompt, chat=settings.chat))
    for kind, threads, rate in rival.alone(context, count, thread_counts()):
        yield Way(RIVAL.format(kind), "baseline", threads, 0), rate, None
    drafts = sorted({*DRAFTED, settings.gamma})
    for kind, threads, gamma in product(KINDS, thread_counts(), drafts):
        for draft_threads in sorted({1, threads}):
            told = draft_threads if draft_threads != threads else None
            way = Way(RIVAL.format(kind), "speculative", threads, gamma, told)
            yield way, *rival.speculative(kind, prompt, count, (threads, draft_threads), gamma)
