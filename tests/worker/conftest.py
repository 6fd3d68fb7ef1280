"""A worker in a separate process, which can run tasks that misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from forked_process import ForkedProcess

from specviz.worker import client
from specviz.worker.client import ProcessWorker


@pytest.fixture(scope="module")
def worker() -> Iterator[ProcessWorker]:
    """A worker whose processes are forked from one with the libraries.
    `test_the_process_ends_with_the_page` and the tests of whole pages start them as users do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "subprocess", SimpleNamespace(Popen=ForkedProcess, PIPE=None))
        worker = ProcessWorker()
        yield worker
        worker.close()
