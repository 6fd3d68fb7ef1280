"""The lanes and other engines on the same prompts, in turn: each way at its best, as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path

from ...core.events import Round
from ...core.loop import decode
from ...core.threads import thread_counts
from ...lanes import BASELINE, LANE_LABELS, LANES, SPECULATIVE, Lane
from ...pairs.pair import Pair
from ...runs.intervals import Spread, spread
from ...settings import Settings
from ..racing import all_with
from ..tables import rate_line

HERE = "specviz"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to write a text. who: `HERE`, or a server and how it was timed. threads: 0 where a
    server does not tell. gamma: drafted tokens per round, 0 for the target alone and where it is
    not told."""

    who: str
    lane: Lane
    threads: int
    gamma: int

    def __str__(self) -> str:
        drafts = f", drafts of {self.gamma}" if self.gamma else ""
        threads = (
            f", {self.threads} thread{'s' if self.threads > 1 else ''}" if self.threads else ""
        )
        return f"{LANE_LABELS[self.lane]}, {self.who}{threads}{drafts}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was measured on `prompts` prompts.

    rates: tokens per second without prefill, by way; the samples of all ways are in one order.
    same_texts: the number of prompts to which each engine wrote the text that was written here.
    parted: for the other prompts, at which token the texts part, from 0.
    """

    rates: dict[Way, list[float]]
    same_texts: dict[str, int]
    prompts: int
    parted: dict[str, list[int]] = field(default_factory=dict)

    def best(self, whos: Sequence[str], lane: Lane | None = None) -> Way:
        """The way with the highest median among these names, of one lane or of both."""
        ways = [w for w in self.rates if w.who in whos and lane in (None, w.lane)]
        return max(ways, key=lambda way: spread(self.rates[way]).median)

    def ratio(self, one: Way, other: Way) -> Spread:
        """The rate of `one` over that of `other`, sample by sample."""
        pairs = zip(self.rates[one], self.rates[other], strict=True)
        return spread(a / b for a, b in pairs)


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


def ways_report(
    compare: Callable[[], Comparison],
    prompts: Sequence[str],
    settings: Settings,
    repeats: int,
    file: Path | None,
) -> None:
    """Compare, print all ways and the ratios of the best, and write them to `file` as JSON."""
    print(
        f"greedy, {len(prompts)} prompts, {repeats} repeats, {settings.max_new_tokens} tokens "
        "each; all ways take turns on each prompt; prefill is not counted\n",
        flush=True,
    )
    found = compare()
    print(*_lines(found), sep="\n")
    if file:
        rows = [{**asdict(way), **asdict(spread(rates))} for way, rates in found.rates.items()]
        texts = {"same_texts": found.same_texts, "parted": found.parted}
        result = {"rows": rows, **texts, "prompts": found.prompts}
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _order(way: Way) -> tuple[int, str, int, int]:
    return LANES.index(way.lane), way.who, way.threads, way.gamma


def _lines(found: Comparison) -> Iterator[str]:
    for way in sorted(found.rates, key=_order):
        rate = spread(found.rates[way])
        yield rate_line(str(way), rate, 76)
    for who, count in found.same_texts.items():
        where = ", ".join(str(index + 1) for index in found.parted.get(who, []))
        apart = f"; the others part at token {where}" if where else ""
        prompts = f"{count}/{found.prompts} prompts{apart}"
        yield f"  {who} wrote the text that was written here on {prompts}"
    yield "\nbest against best, tokens/s"
    yield _ratio_line(found, found.best([HERE]), found.best([HERE], "baseline"))
    for whos in _engines(found):
        has = {way.lane for way in found.rates if way.who in whos}
        lanes = [lane for lane in LANES[::-1] if lane in has]
        for lane in lanes:
            yield _ratio_line(found, found.best([HERE], lane), found.best(whos, lane))
        if len(lanes) == len(LANES):
            yield _ratio_line(found, found.best(whos, SPECULATIVE), found.best(whos, BASELINE))


def _engines(found: Comparison) -> list[list[str]]:
    """The names of the others in `found`, those of one engine together."""
    whos = sorted({way.who for way in found.rates if way.who != HERE})
    return [list(some) for _, some in groupby(whos, key=lambda who: who.split()[0])]


def _ratio_line(found: Comparison, one: Way, other: Way) -> str:
    ratio = found.ratio(one, other)
    return f"  {ratio.shown()} times: {one} / {other}"
