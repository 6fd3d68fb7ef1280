"""The client of the models' process: starts the process, sends it tasks and yields their results.

That process has its own interpreter lock, so a page with many visitors cannot slow the lanes down,
and a crash of the models does not stop the page. A process that no longer answers is replaced.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Protocol

from ..base.errors import SpecvizError
from ..base.variables import SILENT_SECONDS
from ..core.events import End
from .failures import LOST, SILENT
from .messages import Reply, read_message, write_message
from .tasks import Stop, Task

log = logging.getLogger(__name__)

WORKER_HEARTBEAT = 0.1  # seconds without a result after which a `ProcessWorker` yields None


def command_of(module: str, call: str = "serve()") -> list[str]:
    """Return the command of a process that calls `serve` of a module of this package. It finds the
    package whatever the working directory and the environment are."""
    code = f"import sys; sys.path.insert(0, sys.argv[1]); from {module} import serve; {call}"
    folder_of_package = Path(__file__).resolve().parents[2]
    return [sys.executable, "-c", code, str(folder_of_package)]


class Worker(Protocol):
    """Runs one task at a time."""

    def run(self, task: Task, stop: Stop | None = None) -> Generator[Any, None, None]:
        """Run the task, beginning with the first `next()`, and yield its results.

        Texts among the results are sentences for the visitor. None is a heartbeat: there is no
        new result, but the caller gets a chance to look at the time, to set `stop`, or to give
        up. How often heartbeats come, and whether they do, depends on the worker.

        Once `stop` is set, the task ends soon, and only an `End` may still be yielded. Closing the
        generator does not wait for the end of the task where that can be avoided; the worker can
        then be used again at once. Raises `SpecvizError`, with a sentence for the visitor.
        """
        ...

    def close(self) -> None:
        """Release the models."""
        ...


def results_of(worker: Worker, task: Task) -> Iterator[Any]:
    """The results of a task that nobody stops, without heartbeats."""
    return (result for result in worker.run(task) if result is not None)


class ModelsProcess:
    """One process, from its start to its end. A thread reads its replies, so that others can
    wait for a reply and for something else at once.

    replies: those that nobody has read yet. busy: whether a task has begun and not ended.
    """

    alive: ClassVar[weakref.WeakSet[ModelsProcess]] = weakref.WeakSet()

    def __init__(self, nice: int = 0) -> None:
        self._popen = subprocess.Popen(
            command_of("specviz.worker.main"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        if nice and hasattr(os, "setpriority"):  # Windows has other priorities
            with contextlib.suppress(OSError):  # it has ended already
                # Threads that it starts from now on inherit this.
                os.setpriority(os.PRIO_PROCESS, self._popen.pid, os.nice(0) + nice)
        self.replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self.busy = False
        self.alive.add(self)
        arguments = (self._popen.stdout, self.replies)
        threading.Thread(target=_read, args=arguments, name="replies", daemon=True).start()

    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def send(self, message: Task | None) -> None:
        """Send a task, or None to stop the current one. Raises `OSError` if the process has
        ended."""
        self.busy = True
        assert self._popen.stdin is not None
        write_message(self._popen.stdin, message)

    def end(self) -> None:
        """Kill the process and wait until it has ended."""
        self._popen.kill()
        self._popen.wait()
        with contextlib.suppress(OSError):  # what was not sent may still be in its buffer
            assert self._popen.stdin is not None
            self._popen.stdin.close()


def _read(pipe: BinaryIO, replies: queue.SimpleQueue[Reply]) -> None:
    with pipe:
        try:
            while True:
                replies.put(read_message(pipe))
        except OSError as error:
            replies.put(("lost", error))
        except Exception as error:  # half a message can fail in any way
            replies.put(("lost", EOFError(repr(error))))


def end_processes() -> None:
    """End the models' processes at once, even in the middle of a pass."""
    for process in list(ModelsProcess.alive):
        process.end()


class ProcessWorker:
    """Runs tasks in the models' process, which starts with the first task and starts again after a
    crash. silent_seconds: how long the process may give no result before it is replaced; None for
    the operator's choice. nice: added to this process's niceness, 0 to 19, so that other processes
    go first. Raises `SettingsError`."""

    def __init__(self, *, silent_seconds: float | None = None, nice: int = 0) -> None:
        if silent_seconds is None:
            silent_seconds = SILENT_SECONDS.read()
        self._silent_seconds = silent_seconds
        self._nice = nice
        self._process: ModelsProcess | None = None

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
        process.send(task)
        last_reply = time.monotonic()
        stopped = False
        while True:
            if stop.is_set() and not stopped:
                process.send(None)
                stopped = True
            try:
                kind, value = process.replies.get(timeout=WORKER_HEARTBEAT)
            except queue.Empty:
                if time.monotonic() - last_reply > self._silent_seconds:
                    raise SpecvizError(SILENT) from None
                yield None
                continue
            last_reply = time.monotonic()
            process.busy = kind in ("result", "leaving", "lost")
            if kind == "done":
                return
            if kind != "result":
                raise value
            # The process may have sent more before it read the stop.
            is_late = stopped and not isinstance(value, End)
            if is_late:
                value = None
            yield value

    def close(self) -> None:
        process = self._process
        self._process = None
        if process is not None:
            process.end()

    def _idle_process(self) -> ModelsProcess:
        """The process, or a new one if it has ended or still works for an abandoned run."""
        process = self._process
        if process is not None:
            is_idle = not process.busy and process.is_alive()
            if not is_idle:
                self.close()
        if self._process is None:
            self._process = ModelsProcess(self._nice)
        return self._process
