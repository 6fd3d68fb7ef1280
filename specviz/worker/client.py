"""Where the models live: in this process, or in one that does nothing but decode.

A process of its own has its own interpreter lock, so a page with many visitors cannot slow the
lanes down, and a crash of the models leaves the page standing. One that no longer answers is
replaced.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle  # nosec B403
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal, Protocol, TypeAlias

from ..errors import PairError, SpecvizError
from ..trace import End
from .failures import FAILED, LOST, SILENT, sentence_of, wants_memory
from .limits import Limits
from .tasks import Load, Models, Race, Take, Task, memory_in_numbers

# Whoever asks a worker finds its sentences here too.
__all__ = [
    "FAILED",
    "LOST",
    "Asking",
    "LocalWorker",
    "ProcessWorker",
    "Wish",
    "Worker",
    "end_with_children",
]

log = logging.getLogger(__name__)

# This very package, whatever else the working directory or the environment holds.
_SERVE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from specviz.worker.main import serve; serve()"
)
_ROOT = Path(__file__).resolve().parent.parent.parent
_POLL = 0.1  # seconds without a result after which whoever asked is asked again

Wish: TypeAlias = Literal["go on", "end", "drop"]
"""What whoever asked wants of a task by now; "drop" does not wait for it to end by itself."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A `Take` that can be asked what it wants while there is nothing to hand to it."""

    take: Take
    wish: Callable[[], Wish]

    def __call__(self, item: Any) -> bool:
        return self.take(item)


class Worker(Protocol):
    """Does one task at a time."""

    def run(self, task: Task, take: Take) -> None:
        """Do it; `take` is called with each result, in this thread.

        Once it has said False it hears nothing more but an `End`. If it is an `Asking`, its wish
        is heeded between results too, where that is possible.
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
        except SpecvizError as error:
            if not wants_memory(error) or isinstance(error, PairError):
                raise
            raise SpecvizError(_with_numbers(str(error), task.pair)) from error
        except Exception as error:
            log.exception("a task failed")
            said = sentence_of(error)
            if wants_memory(error):
                said = _with_numbers(said, task.pair)
            raise SpecvizError(said) from error

    def close(self) -> None:
        pass


def _with_numbers(sentence: str, pair: str) -> str:
    try:
        return f"{sentence} {memory_in_numbers(pair)}".rstrip()
    except Exception:
        log.exception("the doctor had no numbers")
        return sentence


class ProcessWorker:
    """Works in a process that is started with the first task, and anew after it was lost."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits.from_environment()
        self._process: _Process | None = None

    def start(self) -> None:
        """Begin to start the process, so that the first task finds it there."""
        self._living()

    def run(self, task: Task, take: Take) -> None:
        wish = take.wish if isinstance(take, Asking) else _always
        try:
            self._run(task, take, wish)
        except (EOFError, OSError) as error:
            log.error("the models' process was lost: %r", error)
            self.close()
            raise SpecvizError(LOST) from error
        except SpecvizError:
            raise
        except BaseException:
            self.close()  # what it still has to say belongs to nobody
            raise

    def _run(self, task: Task, take: Take, wish: Callable[[], Wish]) -> None:
        process = self._living()
        process.begin(task)
        heard, stopped = time.monotonic(), False
        while True:
            wanted = wish()
            if wanted == "drop":
                log.warning("a task did not end when it was told to: its process is replaced")
                self.close()
                return
            if wanted == "end" and not stopped:
                process.stop()
                stopped = True
            try:
                kind, value = process.replies.get(timeout=_POLL)
            except queue.Empty:
                if time.monotonic() - heard > self._limits.silent_seconds:
                    log.error("the models' process is silent: it is replaced")
                    self.close()
                    raise SpecvizError(SILENT) from None
                continue
            heard = time.monotonic()
            if kind == "done":
                return
            if kind in ("lost", "leaving"):
                self.close()
            if kind in ("error", "leaving", "lost"):
                raise value
            # How a run ended is for everyone, whoever had enough of it.
            if (not stopped or isinstance(value, End)) and not take(value) and not stopped:
                process.stop()
                stopped = True

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _living(self) -> _Process:
        if self._process is None or not self._process.lives():
            self._process = _Process()
        return self._process


def _always() -> Wish:
    return "go on"


class _Process:
    """One life of the models' process. What it says is read by a thread, for nobody can wait
    for a pipe and for something else at once.

    replies: pairs of a kind and a value; the last one is "lost" and why.
    """

    living: ClassVar[weakref.WeakSet[_Process]] = weakref.WeakSet()

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(_ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.replies: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._task = 0
        self.living.add(self)
        arguments = (self._popen.stdout, self.replies)
        threading.Thread(target=_read, args=arguments, name="replies", daemon=True).start()

    def lives(self) -> bool:
        return self._popen.poll() is None

    def begin(self, task: Task) -> None:
        self._task += 1
        self._say(task)

    def stop(self) -> None:
        """Ask for the end of the task that was begun last."""
        self._say(None)

    def _say(self, message: Task | None) -> None:
        assert self._popen.stdin is not None
        write_message(self._popen.stdin, (self._task, message))

    def end(self) -> None:
        self._popen.kill()
        self._popen.wait()
        with contextlib.suppress(OSError):  # something unsaid may be left in it
            assert self._popen.stdin is not None
            self._popen.stdin.close()


def _read(pipe: BinaryIO, replies: queue.SimpleQueue[tuple[str, Any]]) -> None:
    with pipe:
        try:
            while True:
                replies.put(pickle.load(pipe))  # nosec B301
        except OSError as error:
            replies.put(("lost", error))
        except Exception as error:  # whatever half a message reads like
            replies.put(("lost", EOFError(repr(error))))


def write_message(pipe: Any, message: Any) -> None:
    # In one piece: a value that cannot be sent must not leave half of itself in the pipe.
    pipe.write(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
    pipe.flush()


def end_with_children() -> None:
    """From now on SIGTERM ends this process at once and the models' processes with it, even one
    that is deep in a pass. To be called in the main thread."""

    def end(number: int, _: Any) -> None:
        for process in list(_Process.living):
            process.end()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
