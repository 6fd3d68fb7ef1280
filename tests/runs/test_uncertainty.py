"""How far a ratio can be trusted: planted delays are found, a steady run is not doubted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from delayed_runs import slow_middle, slower_later, steady, timed, too_fast
from toy_recordings import SAMPLED, recorded

from specviz import compute_metrics
from specviz.runs.terminal import metric_lines
from specviz.runs.uncertainty import DOUBTS, uncertainty

LONG = replace(SAMPLED, max_new_tokens=64)


def test_a_steady_run_is_not_doubted_and_has_no_spread() -> None:
    run = timed(recorded(LONG), steady)
    found = uncertainty(run)
    assert found is not None and found.spread is not None and found.doubt is None
    assert found.delays == pytest.approx({"speculative": 0.0, "baseline": 0.0}, abs=1e-9)
    m = compute_metrics(run)
    assert m.tau is not None and m.speedup == pytest.approx(m.tau / found.price)
    spread = found.spread
    assert (spread.low, spread.median, spread.high) == pytest.approx((m.speedup,) * 3)
    assert not any(line.startswith("  uncertain") for line in metric_lines(run))


@pytest.mark.parametrize(
    ("factor", "doubt"), [(slow_middle, "delay"), (slower_later, "spread"), (too_fast, "price")]
)
def test_a_planted_slow_lane_is_doubted(factor, doubt) -> None:  # type: ignore[no-untyped-def]
    run = timed(recorded(LONG), factor)
    found = uncertainty(run)
    assert found is not None and found.doubt == doubt
    assert any(DOUBTS[found.doubt] in line for line in metric_lines(run))


def test_a_short_run_is_uncertain_and_a_shorter_one_has_no_ratio() -> None:
    few = uncertainty(timed(recorded(replace(SAMPLED, max_new_tokens=8)), steady))
    assert few is not None and few.doubt == "short" and few.spread is None
    assert uncertainty(recorded(replace(SAMPLED, max_new_tokens=1))) is None
