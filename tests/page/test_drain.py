"""The end of the page: the current run may finish, and all other requests are told to come back
later."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from streams import deltas
from toy_models import llama, pair_of, relative

from specviz import Settings, SpecvizError, race
from specviz.core.events import Event
from specviz.page.delivery import CUT_BY_RESTART, drain
from specviz.page.jobs import Run
from specviz.page.queue import CLOSING, RunQueue
from specviz.worker.local import LocalWorker


class Visit(threading.Thread):
    """A visitor who reads all events of a run."""

    def __init__(self, queue: RunQueue, session: str) -> None:
        super().__init__(daemon=True)
        settings = Settings(temperature=1.0, max_new_tokens=40, seed=1)
        self.queue = queue
        self.run_ = Run(session, "toy", "w1 w2", settings)
        self.heard: list[dict[str, Any]] = []

    def run(self) -> None:
        self.heard = [json.loads(text) for text in deltas(self.queue, self.run_)]


@pytest.mark.parametrize("enough", [True, False])
def test_the_current_run_ends_and_no_other_begins(enough: bool) -> None:
    going_on = threading.Event()

    def held(*arguments: Any) -> Iterator[Event]:
        for count, event in enumerate(race(*arguments)):
            yield event
            if count == 5:
                going_on.set()
            if count >= 5:
                time.sleep(0.01 if enough else 0.1)

    target = llama(40)
    queue = RunQueue(LocalWorker(lambda *_: pair_of(target, relative(target, noise=0.1)), held))
    queue.start("toy")
    current = Visit(queue, "one")
    waiting = Visit(queue, "two")
    current.start()
    assert going_on.wait(30)
    waiting.start()
    while len(queue.jobs()) < 2:
        time.sleep(0.01)
    began = time.monotonic()
    drain(queue, 30 if enough else 0.2)
    took = time.monotonic() - began
    for visit in (current, waiting):
        visit.join(10)
    ends = [delta["end"]["reasons"] for delta in current.heard if "end" in delta]
    (reasons,) = {tuple(sorted(one.values())) for one in ends}
    if enough:
        assert reasons == ("length", "length") and "remark" not in current.heard[-1]
    else:
        assert "stopped" in reasons and current.heard[-1]["remark"] == CUT_BY_RESTART and took < 5
    assert any("rounds" in delta for delta in current.heard)
    assert waiting.heard[-1]["error"] == CLOSING and waiting.heard[-1]["fall_back"]
    assert not any("rounds" in delta for delta in waiting.heard)
    with pytest.raises(SpecvizError, match="press Run again"):
        queue.submit(Run("three", "toy", "w1", Settings()))


def test_an_empty_page_ends_at_once() -> None:
    queue = RunQueue(LocalWorker(lambda *_: None, race))
    began = time.monotonic()
    drain(queue, 30)
    assert time.monotonic() - began < 1
