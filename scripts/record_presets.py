"""Record a real run of every preset and of every question of the stage: `make recordings`.

Each of them runs a few times, and the run with the median speed-up is kept, so that the recordings
show neither lucky nor disturbed runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from specviz import Settings, Trace, compute_metrics, load_pair, race
from specviz.base.environment import BUILTIN
from specviz.core.threads import leave_one_to_the_page, limit_torch_threads
from specviz.page.offer import QUESTIONS, Preset, folder_of, presets_of
from specviz.page.public import RECORDINGS
from specviz.runs.recording import file_summary

PAIRS = (BUILTIN, "smollm2-135m", "qwen2.5-coder-1.5b")
MAX_BYTES = 2**21  # bytes of all recordings together


def recorded_of(pair: str) -> tuple[Preset, ...]:
    """The recordings of this pair for the stage's questions, in addition to its presets."""
    path = folder_of(pair) / QUESTIONS
    questions = json.loads(path.read_text("utf-8"))
    return tuple(Preset(**entry) for entry in questions["recorded"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Record a real run of every preset and question.")
    parser.add_argument("--out", type=Path, default=RECORDINGS)
    parser.add_argument(
        "--pairs", nargs="*", default=PAIRS, help="names of pairs with presets of their own"
    )
    parser.add_argument(
        "--runs", type=int, default=3, help="runs of each preset; the median one is kept"
    )
    parser.add_argument("--only", nargs="*", help="names of presets; default: all")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    limit_torch_threads()
    leave_one_to_the_page()  # as the page itself does
    for name in options.pairs:
        presets = (*presets_of(name), *recorded_of(name))
        if options.only is not None:
            presets = tuple(preset for preset in presets if preset.name in options.only)
        if not presets:
            continue
        pair = load_pair(name)
        for preset in presets:
            path = options.out / f"{preset.name}.json.gz"
            runs = [_raced(pair, name, preset) for _ in range(options.runs)]
            runs.sort(key=_speedup)
            median = runs[len(runs) // 2]
            median.save(path)
            _check_text(median)
            print(f"{file_summary(path)}, {_speedup(median):.2f} times the speed")
    total = sum(path.stat().st_size for path in options.out.glob("*.json.gz"))
    print(f"{total:,} bytes in all")
    if total > MAX_BYTES:
        raise SystemExit(f"the recordings hold {total:,} bytes, more than {MAX_BYTES:,}.")


def _speedup(trace: Trace) -> float:
    return compute_metrics(trace).speedup or 0.0


def _check_text(trace: Trace) -> None:
    """Check that greedy lanes write the same text: a recording in which they diverge would
    contradict its purpose. Raises `SystemExit`."""
    is_greedy = trace.header.settings.temperature == 0
    if is_greedy and trace.text("speculative") != trace.text("baseline"):
        raise SystemExit(
            "the lanes of a greedy run differ: use another prompt, or look for the bug."
        )


def _raced(pair: Any, name: str, preset: Preset) -> Trace:
    settings = Settings(**preset.settings_on(name))
    return Trace.from_events(race(pair, preset.prompt, settings))


if __name__ == "__main__":
    main()
