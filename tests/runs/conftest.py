"""The tests of this folder do not depend on the times of runs, so their races skip the warm-up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bare_rounds import cold_races


@pytest.fixture(scope="package", autouse=True)
def cold() -> Iterator[None]:
    with cold_races():
        yield
