"""Visitors' files, and the recordings in a folder of the server. A file arrives as bytes at an
address for its kind. Another process parses it, one file at a time and with a timeout; this process
parses nothing of it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from ..base.errors import SpecvizError, TraceError
from ..base.logs import SECRETS
from ..runs.recording import PROMPT_FILES
from ..worker.client import command_of
from ..worker.failures import FAILED
from .public import RECORDINGS_AT
from .sweeps import taken_prompts

log = logging.getLogger(__name__)

SUFFIX = ".json.gz"

_SERVE = command_of("specviz.runs.recording", "serve(sys.stdin.buffer, sys.stdout.buffer)")
MAX_SECONDS = 20.0  # for one file; the largest recordings take a fifth of it
MAX_WAITING = 4  # files that may wait; each waiting one holds a thread of the server
IDLE = 60.0  # seconds without a file after which the process ends

TOO_SLOW = "this file takes too long to read; use a smaller one."
CROWDED = "many files are being opened at the moment; try again in a minute."


class FileReader:
    """Sends files to the reading process, which starts with the first file, and again after it
    ended."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(MAX_WAITING + 1)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._idle: threading.Timer | None = None

    def answer(self, kind: str, raw: bytes) -> bytes:
        """Return the contents of a file, or `{"error": sentence}`, as JSON. kind: of
        `addresses.MAX_BYTES`."""
        if not self._places.acquire(blocking=False):
            return orjson.dumps({"error": CROWDED})
        try:
            with self._lock:
                answer = self._read_in_process(kind, raw)
            if kind not in PROMPT_FILES:
                return answer
            prompts = orjson.loads(answer)
            if "error" in prompts:
                return answer
            return orjson.dumps(taken_prompts(prompts))
        except SpecvizError as error:
            return orjson.dumps({"error": str(error)})
        except Exception:
            log.exception("a file could not be read")
            return orjson.dumps({"error": FAILED})
        finally:
            self._places.release()

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._end()

    def _read_in_process(self, kind: str, raw: bytes) -> bytes:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        limit = after(MAX_SECONDS, process.kill)
        try:
            process.stdin.write(f"{kind} {len(raw)}\n".encode())
            process.stdin.write(raw)
            process.stdin.flush()
            size = int(process.stdout.readline())
            answer = process.stdout.read(size)
            if len(answer) < size:
                raise EOFError
        except (OSError, EOFError, ValueError):
            self._end()
            log.warning("a visitor's file of %d bytes could not be read", len(raw))
            raise TraceError(TOO_SLOW) from None
        finally:
            limit.cancel()
        self._idle = after(IDLE, self.close)
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._idle is not None:
            self._idle.cancel()
        if self._process is None or self._process.poll() is not None:
            self._end()
            public = {name: value for name, value in os.environ.items() if name not in SECRETS}
            self._process = subprocess.Popen(
                _SERVE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=public
            )
        return self._process

    def _end(self) -> None:
        process = self._process
        self._process = None
        if process is not None:
            process.kill()
            process.communicate()


def after(seconds: float, action: Callable[[], object]) -> threading.Timer:
    """Start a timer that does not delay the program's end."""
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer


def find_recordings(folder: Path, first: Sequence[str] = ()) -> dict[str, str]:
    """The address of each recording in a folder, by name; those in `first` come first."""
    paths = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        paths[path.name.removesuffix(SUFFIX)] = path
    names = [name for name in first if name in paths]
    names += [name for name in paths if name not in names]
    return {name: RECORDINGS_AT + paths[name].name for name in names}
