"""Where the models live: in this process, or in one that does nothing but decode.

A process of its own has its own interpreter lock, so a page with many visitors cannot slow the
lanes down, and a crash of the models leaves the page standing.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from .errors import SpecvizError
from .tasks import Load, Models, Race, Take, Task

log = logging.getLogger(__name__)

FAILED = (
    "Something went wrong that is not your fault. The log has the details; press Run to try again."
)
LOST = (
    "The models' process ended, perhaps for want of memory. It starts again with the next run: "
    "press Run, with a shorter length or a smaller pair if it happens twice."
)
_SERVE = "from specviz.worker import serve; serve()"
_ROOT = Path(__file__).resolve().parent.parent


class Worker(Protocol):
    """Does one task at a time."""

    def run(self, task: Task, take: Take) -> None:
        """Do it; `take` is called with each result, in this thread.

        Raises `SpecvizError`, with a sentence for whoever asked.
        """
        ...

    def close(self) -> None:
        """Let go of the models."""
        ...


class LocalWorker:
    """Works in the caller's thread."""

    def __init__(self, load: Load, race: Race) -> None:
        self._models = Models(load, race)

    def run(self, task: Task, take: Take) -> None:
        try:
            task.run(self._models, take)
        except SpecvizError:
            raise
        except Exception as error:
            log.exception("a task failed")
            raise SpecvizError(FAILED) from error

    def close(self) -> None:
        pass


class ProcessWorker:
    """Works in a process that is started with the first task, and anew after it was lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to start the process, so that the first task finds it there."""
        self._pipes()

    def run(self, task: Task, take: Take) -> None:
        try:
            self._run(task, take)
        except (EOFError, OSError) as error:
            log.error("the models' process was lost: %r", error)
            self.close()
            raise SpecvizError(LOST) from error
        except SpecvizError:
            raise
        except BaseException:
            self.close()  # what it still has to say belongs to nobody
            raise

    def _run(self, task: Task, take: Take) -> None:
        commands, replies = self._pipes()
        _write(commands, task)
        wanted = True
        while True:
            kind, value = pickle.load(replies)
            if kind == "done":
                return
            if kind == "leaving":
                self.close()
            if kind in ("error", "leaving"):
                raise value
            if wanted and not take(value):
                wanted = False
                _write(commands, None)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _pipes(self) -> tuple[BinaryIO, BinaryIO]:
        if self._process is None or self._process.poll() is not None:
            path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": path},
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout  # type: ignore[return-value]


def _write(pipe: BinaryIO, message: Any) -> None:
    pickle.dump(message, pipe, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def serve() -> None:
    """The life of the process: tasks from stdin, replies to stdout, until stdin ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not land among the replies
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stopping = threading.Event()
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    listening = threading.Thread(target=_listen, args=(tasks, stopping), daemon=True)
    listening.start()

    # Only now: the page is told nothing until they are here, but may already ask.
    from .engine import spare_threads
    from .pairs import load_pair
    from .race import race

    spare_threads()
    worker = LocalWorker(load_pair, race)

    def reply(kind: Literal["item", "done", "error", "leaving"], value: Any = None) -> None:
        _write(replies, (kind, value))

    def take(item: Any) -> bool:
        reply("item", item)
        return not stopping.is_set()

    while True:
        task = tasks.get()
        # A stop for the task before may have come late; one for this task cannot be here yet.
        stopping.clear()
        try:
            worker.run(task, take)
        except SpecvizError as error:
            if _poisoned(error):
                reply("leaving", error)
                os._exit(1)
            reply("error", error)
        else:
            reply("done")


def _listen(tasks: queue.SimpleQueue[Task], stopping: threading.Event) -> None:
    commands = os.fdopen(os.dup(0), "rb")
    while True:
        try:
            task = pickle.load(commands)
        except EOFError:
            os._exit(0)  # whoever asked is gone
        if task is None:
            stopping.set()
        else:
            tasks.put(task)


def _poisoned(error: BaseException) -> bool:
    # After an error in a kernel, no later call of the process can use the device.
    cause = error.__cause__
    return isinstance(cause, RuntimeError) and "CUDA error" in str(cause)
