"""Workers: what runs tasks, in this process or in a process that only decodes.

A process of its own has its own interpreter lock, so a page with many visitors cannot slow the
lanes down, and a crash of the models does not stop the page. A process that no longer answers is
replaced.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Generator, Iterator
from typing import Any, Protocol

from ..core.events import End
from ..errors import PairError, SpecvizError, in_one_line, ran_out_of_memory
from .failures import LOST, SILENT, sentence_of
from .limits import Limits
from .loading import Load, Models, Race, memory_in_numbers
from .process import ModelsProcess
from .tasks import Stop, Task

log = logging.getLogger(__name__)

HEARTBEAT = 0.1  # seconds without a result after which a `ProcessWorker` yields None


class Worker(Protocol):
    """Runs one task at a time."""

    def run(self, task: Task, stop: Stop | None = None) -> Generator[Any, None, None]:
        """Run the task, beginning with the first `next()`, and yield its results.

        Texts among the results are sentences for the visitor. None is a heartbeat: there is no
        new result, but the caller gets a chance to look at the time, to set `stop`, or to give
        up. How often heartbeats come, and whether they do, depends on the worker.

        Once `stop` is set, the task ends soon, and only an `End` may still be yielded. Closing
        the generator does not wait for the task to end by itself where that can be avoided; the
        worker can then be used again at once. Raises `SpecvizError`, with a sentence for the
        visitor.
        """
        ...

    def close(self) -> None:
        """Release the models."""
        ...


def results_of(worker: Worker, task: Task) -> Iterator[Any]:
    """The results of a task that nobody stops, without heartbeats."""
    return (item for item in worker.run(task) if item is not None)


class LocalWorker:
    """Runs tasks in the caller's thread. It has no heartbeats."""

    def __init__(self, load: Load, race: Race) -> None:
        self._models = Models(load, race)

    def run(self, task: Task, stop: Stop | None = None) -> Generator[Any, None, None]:
        try:
            yield from task.run(self._models, stop or Stop())
        except Exception as error:
            if not isinstance(error, SpecvizError):
                log.exception("a task failed")
            elif isinstance(error, PairError) or not ran_out_of_memory(error):
                if error.__cause__ is not None:  # which does not travel to another process
                    log.warning("a task for the pair %r failed: %s", task.pair, in_one_line(error))
                raise
            raise SpecvizError(_sentence_with_numbers(error, task.pair)) from error

    def close(self) -> None:
        pass


def _sentence_with_numbers(error: Exception, pair: str) -> str:
    """What a visitor is told about an error: if memory ran out, also how much the pair takes."""
    sentence = sentence_of(error)
    if not ran_out_of_memory(error):
        return sentence
    try:
        return f"{sentence} {memory_in_numbers(pair)}".rstrip()
    except Exception:
        log.exception("the doctor had no numbers")
        return sentence


class ProcessWorker:
    """Runs tasks in the models' process, which starts with the first task, and again after it
    was lost."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits.from_environment()
        self._process: ModelsProcess | None = None
        self.restarts = 0  # processes that took the place of another

    def start(self) -> None:
        """Begin to start the process, so that the first task need not wait for it."""
        self._idle_process()

    def run(self, task: Task, stop: Stop | None = None) -> Generator[Any, None, None]:
        process = self._idle_process()
        try:
            yield from self._results(process, task, stop or Stop())
        except (EOFError, OSError) as error:
            log.error("the models' process was lost: %r", error)
            raise SpecvizError(LOST) from error
        finally:
            # Nobody reads its further replies, and the next task must not read them.
            if process.busy:
                log.warning("the models' process is replaced before its task has ended")
                process.end()

    def _results(
        self, process: ModelsProcess, task: Task, stop: Stop
    ) -> Generator[Any, None, None]:
        process.begin(task)
        last_reply, stopped = time.monotonic(), False
        while True:
            if stop.is_set() and not stopped:
                process.stop()
                stopped = True
            try:
                kind, value = process.replies.get(timeout=HEARTBEAT)
            except queue.Empty:
                if time.monotonic() - last_reply > self._limits.silent_seconds:
                    raise SpecvizError(SILENT) from None
                yield None
                continue
            last_reply = time.monotonic()
            process.busy = kind in ("item", "leaving", "lost")
            if kind == "done":
                return
            if kind != "item":
                raise value
            # The process may have sent more before it read the stop.
            yield value if not stopped or isinstance(value, End) else None

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _idle_process(self) -> ModelsProcess:
        """The process, or a new one if it has ended or works for a run that was abandoned."""
        if self._process is not None and (self._process.busy or not self._process.is_alive()):
            self.close()
            self.restarts += 1
        if self._process is None:
            self._process = ModelsProcess()
        return self._process
