"""Numbers of some runs, as Python computes them, for tests of the page's JavaScript.

The runs are the page's recordings, each also cut off after its first rounds, and a race of several
lanes. `python tests/helpers/golden.py` writes them again.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
from reference_costs import best_gamma, break_even_alpha, explain

from specviz import Trace, compute_metrics
from specviz.base.environment import ASSETS
from specviz.core.lanes import SPECULATIVE
from specviz.core.policy import MOST_GAMMA
from specviz.runs.series import series
from specviz.runs.uncertainty import uncertainty

NODE = Path(__file__).resolve().parents[1] / "node"
GOLDEN = NODE / "golden.json"
SEVERAL = NODE / "several.json"
"""A race of several lanes of a small random pair, on the clock of some machine."""
CUTS = (1, 4, 24, None)
"""Rounds after which a run is cut off."""
PRICES = ((5, 0.2, 1.3), (1, 0.3, 1.0), (5, 0.86, 2.0), (16, 0.01, 0.9))
"""Gamma, c, and the cost of judging so many tokens."""


def traces() -> dict[str, Trace]:
    """The runs by file name."""
    paths = (ASSETS / "recordings").glob("*.json.gz")
    found = {path.name: Trace.load(path) for path in paths}
    # Those of the built-in pair are enough: they have every drafter and every doubt.
    recordings = {name: run for name, run in found.items() if run.header.question is None}
    several = Trace.from_dict(orjson.loads(SEVERAL.read_bytes()))
    return {**dict(sorted(recordings.items())), SEVERAL.name: several}


def numbers() -> dict[str, Any]:
    """What the page must compute, too."""
    cases = [case for name, trace in traces().items() for case in _cases(name, trace)]
    prices = [
        {
            "given": given,
            "break_even": break_even_alpha(*given),
            "best": best_gamma(0.8, given[1], given[2], given[0]),
        }
        for given in PRICES
    ]
    return {"cases": cases, "prices": prices, "most_gamma": MOST_GAMMA}


def _cases(name: str, trace: Trace) -> list[dict[str, Any]]:
    cases = []
    for rounds in CUTS:
        cut = Trace(trace.header, trace.rounds[:rounds], trace.end if rounds is None else None)
        for lane in trace.lanes[:-1]:
            found = uncertainty(cut, lane)
            cases.append(
                {
                    "run": name,
                    "rounds": rounds,
                    "lane": lane,
                    "metrics": asdict(compute_metrics(cut, lane)),
                    "uncertainty": found and asdict(found),
                    "why": _why(cut) if lane == SPECULATIVE else None,
                    "series": series(cut.rounds, trace.lanes),
                }
            )
    return cases


def _why(cut: Trace) -> dict[str, Any] | None:
    why = explain(cut)
    return why and asdict(why)


def written(values: Any) -> bytes:
    """The text of the file."""
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS) + b"\n"


if __name__ == "__main__":
    sys.exit(GOLDEN.write_bytes(written(numbers())) == 0)
