"""A stand-in for ZeroGPU's device service, with scripted answers."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from local_server import Handler, serving

GRANTED = {"idle": False, "nvidiaIndex": 0, "nvidiaUUID": "GPU-0", "allowToken": "let me in"}
QUOTA = {"left": 12, "wait": 12_345}
RESULT = "X-Approve-Result"
# name: (status, body, headers)
ANSWERS: dict[str, tuple[int, Any, dict[str, str]]] = {
    "grant": (200, GRANTED, {}),
    "same": (200, GRANTED | {"idle": True}, {}),
    "quota": (429, QUOTA, {RESULT: "quota-exceeded"}),
    "pending": (429, QUOTA, {RESULT: "pending-overquota-exceeded"}),
    "illegal": (429, QUOTA | {"wait": -1}, {}),
    "busy": (503, b"", {}),
    "broken": (500, b"", {}),
}


@dataclass
class Devices:
    """Requests so far, as (path, parameters), and the next answers.

    answers: names of `ANSWERS` ("same" is the GPU of the last call with its process), or the
    streams "queue" and "timeout"; when none is left, a GPU is granted at once.
    """

    url: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    answers: deque[str] = field(default_factory=deque)

    def last(self, path: str) -> dict[str, str]:
        """The parameters of the last request to a path."""
        return next(parameters for one, parameters in reversed(self.asked) if one == path)

    def count(self, path: str) -> int:
        """The number of requests to a path."""
        return sum(one == path for one, _ in self.asked)


@contextmanager
def device_service() -> Iterator[Devices]:
    """Run the service inside the block."""
    devices = Devices()
    with serving(_handler(devices)) as devices.url:
        yield devices


def _handler(devices: Devices) -> type[Handler]:
    class Scheduler(Handler):
        def respond(self, body: dict[str, Any]) -> None:
            asked = urlsplit(self.path)
            devices.asked.append((asked.path, dict(parse_qsl(asked.query))))
            if asked.path == "/schedule":
                self.schedule(devices.answers.popleft() if devices.answers else "grant")
            else:
                self.answer(200, b"")

        def schedule(self, answer: str) -> None:
            if answer in ANSWERS:
                self.answer(*ANSWERS[answer])
            else:
                data = f"\ndata: {json.dumps(GRANTED)}" if answer == "queue" else ""
                last = "succeeded" if answer == "queue" else "failed"
                texts = ["event: ping\n\n", f"event: {last}{data}\n\n"]
                self.stream(_slowly(texts), headers={"Content-Type": "text/event-stream"})

    return Scheduler


def _slowly(texts: Sequence[str]) -> Iterator[bytes]:
    """Yield texts with a pause after each one: otherwise they arrive together."""
    for text in texts:
        yield text.encode()
        time.sleep(0.1)
