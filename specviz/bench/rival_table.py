"""The comparison with llama.cpp as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from ..lanes import BASELINE, LANES, SPECULATIVE
from ..runs.uncertainty import spread
from ..settings import Settings
from .rival import HERE, Comparison, Way


def rival_report(
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


def _order(way: Way) -> tuple[int, str, int, int, int]:
    lane = LANES.index(way.lane)
    return lane, way.who, way.threads, way.draft_threads or way.threads, way.gamma


def _lines(found: Comparison) -> Iterator[str]:
    for way in sorted(found.rates, key=_order):
        rate = spread(found.rates[way])
        yield f"  {way!s:76} {rate.median:7.1f} tokens/s  ({rate.low:.1f} - {rate.high:.1f})"
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
    """The names of rivals in `found`, those of one engine together."""
    whos = sorted({way.who for way in found.rates if way.who != HERE})
    return [list(some) for _, some in groupby(whos, key=lambda who: who.split()[0])]


def _ratio_line(found: Comparison, one: Way, other: Way) -> str:
    ratio = found.ratio(one, other)
    return f"  {ratio.median:.2f} ({ratio.low:.2f} - {ratio.high:.2f}) times: {one} / {other}"
