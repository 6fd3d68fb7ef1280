"""A task's results as a generator of small lists, for callers who must hear something soon."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import SpecvizError
from .failures import is_fatal, sentence_of
from .tasks import Models, Task

log = logging.getLogger(__name__)

BEAT = 0.05  # seconds between two lists; ZeroGPU can only cancel a call at a yield
MOST_WAITING = 256  # results; a lane whose reader is slower than that waits between its rounds
OVER = object()


@dataclass(frozen=True)
class Failed:
    """Stands at the end of the results for an error: of those in other processes, ZeroGPU passes
    on no more than the name of the class.

    sentence: for the visitor. fatal: whether the process cannot use the device any more.
    """

    sentence: str
    fatal: bool = False


def batches(task: Task, models: Models, seconds: float) -> Iterator[list[Any]]:
    """The results of a task, listed every `BEAT` seconds whether there are new ones or not.

    The task is asked to end after so many seconds, and when the generator is closed, which waits
    for it. It runs in a thread, so that a pass of the models delays no list.
    """
    results: queue.Queue[Any] = queue.Queue(MOST_WAITING)
    stopping = threading.Event()
    deadline = time.monotonic() + seconds

    def take(item: Any) -> bool:
        results.put(item)
        return not stopping.is_set() and time.monotonic() < deadline

    def work() -> None:
        try:
            task.run(models, take)
        except SpecvizError as error:
            results.put(Failed(str(error)))
        except Exception as error:
            log.exception("a task failed")
            results.put(Failed(sentence_of(error), is_fatal(error)))
        results.put(OVER)

    thread = threading.Thread(target=work, name="lanes", daemon=True)
    thread.start()
    try:
        batch: list[Any] = []
        while OVER not in batch:
            batch = _waited(results)
            yield [item for item in batch if item is not OVER]
    finally:
        stopping.set()
        while thread.is_alive():  # it may wait for room among the results
            with contextlib.suppress(queue.Empty):
                results.get(timeout=BEAT)


def _waited(results: queue.Queue[Any]) -> list[Any]:
    """What comes within a beat, or before the end."""
    batch: list[Any] = []
    due = time.monotonic() + BEAT
    while (left := due - time.monotonic()) > 0:
        try:
            batch.append(results.get(timeout=left))
        except queue.Empty:
            break
        if batch[-1] is OVER:
            break
    return batch
