"""The terminal says why a ratio is uncertain; test_figures.py checks the figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from delayed_runs import slow_middle, slower_later, steady, timed, too_fast
from toy_recordings import SAMPLED, recorded

from specviz.runs.terminal import metric_lines
from specviz.runs.uncertainty import DOUBTS

LONG = replace(SAMPLED, max_new_tokens=64)


@pytest.mark.parametrize(
    ("factor", "doubt"), [(slow_middle, "delay"), (slower_later, "spread"), (too_fast, "price")]
)
def test_a_planted_slow_lane_is_doubted(factor, doubt) -> None:  # type: ignore[no-untyped-def]
    run = timed(recorded(LONG), factor)
    assert any(DOUBTS[doubt] in line for line in metric_lines(run))


def test_a_steady_run_is_not_doubted() -> None:
    run = timed(recorded(LONG), steady)
    assert not any(line.startswith("  uncertain") for line in metric_lines(run))
