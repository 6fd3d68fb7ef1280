"""The models' process as the page's process sees it: its start, its pipes, its end."""

from __future__ import annotations

import contextlib
import pickle  # nosec B403
import queue
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from .tasks import Task

# The process must import this very package, whatever its working directory and environment hold.
_SERVE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from specviz.worker.main import serve; serve()"
)
_ROOT = Path(__file__).resolve().parent.parent.parent


class ModelsProcess:
    """One process, from its start to its end. A thread reads its replies, so that others can
    wait for a reply and for something else at once.

    replies: pairs of a kind and a value. "item": a result. "done": the task has ended. "error":
    the task failed, the value says why. "leaving": the same, and the process ends. "lost": the
    pipe broke; nothing follows. busy: whether a task has begun and not ended.
    """

    alive: ClassVar[weakref.WeakSet[ModelsProcess]] = weakref.WeakSet()

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(_ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.replies: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.busy = False
        self.alive.add(self)
        arguments = (self._popen.stdout, self.replies)
        threading.Thread(target=_read, args=arguments, name="replies", daemon=True).start()

    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def begin(self, task: Task) -> None:
        """Send a task. Raises `OSError` if the process has ended."""
        self.busy = True
        self._send(task)

    def stop(self) -> None:
        """Ask for the end of the task that was begun last. Raises as `begin` does."""
        self._send(None)

    def _send(self, message: Task | None) -> None:
        assert self._popen.stdin is not None
        write_message(self._popen.stdin, message)

    def end(self) -> None:
        """Kill the process and wait until it has ended."""
        self._popen.kill()
        self._popen.wait()
        with contextlib.suppress(OSError):  # what was not sent may still be in its buffer
            assert self._popen.stdin is not None
            self._popen.stdin.close()


def _read(pipe: BinaryIO, replies: queue.SimpleQueue[tuple[str, Any]]) -> None:
    with pipe:
        try:
            while True:
                replies.put(pickle.load(pipe))  # nosec B301
        except OSError as error:
            replies.put(("lost", error))
        except Exception as error:  # half a message can fail in any way
            replies.put(("lost", EOFError(repr(error))))


def write_message(pipe: Any, message: Any) -> None:
    """Pickle a message into a pipe at once: if a value cannot be pickled, nothing is written."""
    pipe.write(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
    pipe.flush()


def end_processes() -> None:
    """End the models' processes at once, even in the middle of a pass."""
    for process in list(ModelsProcess.alive):
        process.end()
