"""The figures of small runs equal those worked out by hand. table.test.js checks the page against
the same table."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import chain, repeat
from typing import Any

import pytest
from places import ROOT
from same_figures import check

from specviz import Header, Round, Settings, Token, Trace, compute_metrics
from specviz.core.lanes import BASELINE, SPECULATIVE
from specviz.runs.series import series
from specviz.runs.uncertainty import spread, uncertainty

TABLE = json.loads((ROOT / "tests" / "figures.json").read_text("utf-8"))
OUTCOMES: dict[str, Any] = {"a": "accepted", "r": "rejected", "i": "ignored"}
MODEL = {"name": "toy", "parameters": 1, "form": "eager"}


def run_of(case: dict[str, Any]) -> Trace:
    """Build the run of a case."""
    lanes = case.get("lanes", [SPECULATIVE])
    header = Header(
        prompt="",
        prompt_ids=(1,),
        lanes={lane: Settings() for lane in lanes},
        drafts=dict.fromkeys(lanes),
        target=MODEL,
        device="CPU",
        dtype="float32",
        versions={},
        threads=1,
        date="",
        prefill_seconds=case.get("prefill", {lane: {} for lane in (*lanes, BASELINE)}),
        source=case.get("source"),
    )
    rounds: list[Round] = []
    for lane in (*lanes, BASELINE):
        described = [r for r in case["rounds"] if r["lane"] == lane]
        clock = 0.0
        for index, r in enumerate(
            chain.from_iterable(repeat(r, r.get("times", 1)) for r in described)
        ):
            clock += sum(r["seconds"])
            rounds.append(round_of(r, index, clock))
    return Trace(header, rounds)


def round_of(described: dict[str, Any], index: int, clock: float) -> Round:
    betas = dict(enumerate(described.get("betas", [])))
    chances = dict(enumerate(described.get("chances", [])))
    drafted = [
        Token(1, "", OUTCOMES[letter], beta=betas.get(i), chance=chances.get(i))
        for i, letter in enumerate(described["drafted"])
    ]
    last = Token(1, "", described["last"]) if described["last"] else None
    draft, verify, overhead = described["seconds"]
    return Round(
        lane=described["lane"],
        index=index,
        drafted=drafted,
        last=last,
        draft_seconds=draft,
        verify_seconds=verify,
        overhead_seconds=overhead,
        clock=clock,
        wall=described.get("wall"),
        exchanged=described.get("exchanged"),
    )


@pytest.mark.parametrize("case", TABLE["runs"], ids=lambda case: case["name"])
def test_the_figures_of_a_small_run_are_those_of_the_table(case: dict[str, Any]) -> None:
    run = run_of(case)
    for lane, expected in case["figures"].items():
        check(asdict(compute_metrics(run, lane)), expected.get("metrics", {}), "metrics")
        if "uncertainty" in expected:
            found = uncertainty(run, lane)
            check(found and asdict(found), expected["uncertainty"], "uncertainty")
    check(series(run.rounds, run.lanes), case.get("series", {}), "series")


@pytest.mark.parametrize("case", TABLE["spreads"], ids=lambda case: str(case["values"]))
def test_a_spread_is_the_median_and_the_quartiles(case: dict[str, Any]) -> None:
    assert asdict(spread(case["values"])) == {
        name: case[name] for name in ("median", "low", "high")
    }
