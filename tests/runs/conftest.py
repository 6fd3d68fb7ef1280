"""A fixture of all tests of runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bare_rounds import cold_races


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    """Skip the warm-up of races: no test here reads the times of real passes."""
    with cold_races():
        yield
