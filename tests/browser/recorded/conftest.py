"""Fixtures: the page with recordings, one for each of the first two presets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from forked_page import forked_page
from serve import small_pair

from specviz import Settings, Trace, race
from specviz.page.offer import presets_of

SERVE = Path(__file__).resolve().parent / "serve_recorded.py"
RUNS = (
    Settings(gamma=4, temperature=1.0, max_new_tokens=64, seed=1),
    Settings(gamma=3, max_new_tokens=40, seed=1),
)


def lasting(run: Trace) -> Trace:
    """The run with slower clocks: it plays for at least half a minute, so it does not end while a
    test is stalled. The factor is a power of two, so that all sums stay exact."""
    slower = 2.0 ** math.ceil(math.log2(32 / max(r.clock for r in run.rounds)))
    timed = ("draft_seconds", "verify_seconds", "overhead_seconds", "clock", "wall")
    rounds = [replace(r, **{name: slower * getattr(r, name) for name in timed}) for r in run.rounds]
    return replace(run, rounds=rounds)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recordings of a small random pair."""
    folder = tmp_path_factory.mktemp("recordings")
    pair = small_pair("builtin")
    for preset, settings in zip(presets_of("builtin"), RUNS, strict=False):
        run = Trace.from_events(race(pair, preset.prompt[:40], settings))
        lasting(run).save(folder / f"{preset.name}.json.gz")
    return folder


@pytest.fixture(scope="session")
def names() -> list[str]:
    """The names of the presets."""
    return [preset.name for preset in presets_of("builtin")]


@pytest.fixture(scope="session")
def url(shelf: Path) -> Iterator[str]:
    """A page with recordings."""
    with forked_page(SERVE, str(shelf)) as address:
        yield address
