"""A fixture of all tests of decoding."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm races up by one round: no test here reads the times of real passes."""
    monkeypatch.setattr("specviz.core.turns.WARM_ROUNDS", 1)
