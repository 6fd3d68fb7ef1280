"""The comparison with llama.cpp as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from ..models.pair import Pair
from ..report.uncertainty import spread
from ..settings import Settings
from ..trace import LANES
from .rival import Comparison, Way, compare_with_llama_cpp


def rival_report(
    folder: Path,
    pair: Pair,
    prompts: Sequence[str],
    settings: Settings,
    repeats: int,
    file: Path | None,
) -> None:
    """Compare as `compare_with_llama_cpp` does, print all ways and the ratios of the best, and
    write them to `file` as JSON."""
    print(
        f"greedy, {len(prompts)} prompts, {repeats} repeats, {settings.max_new_tokens} tokens "
        "each; all ways take turns on each prompt; prefill is not counted\n",
        flush=True,
    )
    found = compare_with_llama_cpp(folder, pair, prompts, settings, repeats)
    print(*_lines(found), sep="\n")
    if file:
        rows = [{**asdict(way), **asdict(spread(rates))} for way, rates in found.rates.items()]
        result = {"rows": rows, "same_texts": found.same_texts, "prompts": found.prompts}
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _order(way: Way) -> tuple[int, str, int, int, int]:
    lane = LANES.index(way.lane)
    return lane, way.who, way.threads, way.draft_threads or way.threads, way.gamma


def _lines(found: Comparison) -> Iterator[str]:
    for way in sorted(found.rates, key=_order):
        rate = spread(found.rates[way])
        yield f"  {way!s:76} {rate.median:7.1f} tokens/s  ({rate.low:.1f} - {rate.high:.1f})"
    for who, count in found.same_texts.items():
        yield f"  {who} wrote the text that was written here on {count}/{found.prompts} prompts"
    mine, theirs = found.best(True), found.best(False)
    yield "\nbest against best, tokens/s"
    yield _ratio_line(found, found.best(True, "baseline"), found.best(False, "baseline"))
    yield _ratio_line(found, mine, found.best(True, "baseline"))
    yield _ratio_line(found, mine, theirs)


def _ratio_line(found: Comparison, one: Way, other: Way) -> str:
    ratio = found.ratio(one, other)
    return f"  {ratio.median:.2f} ({ratio.low:.2f} - {ratio.high:.2f}) times: {one} / {other}"
