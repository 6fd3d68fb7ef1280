"""A worker in a process of its own, which can run tasks that misbehave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from places import HELPERS

from specviz.worker.client import ProcessWorker


@pytest.fixture(scope="module")
def worker() -> Iterator[ProcessWorker]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HELPERS))  # so that the process can read such tasks
        worker = ProcessWorker()
        yield worker
        worker.close()
