"""Serve the page with a small random pair, for the browser tests."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "helpers"), str(TESTS.parent)]

from forked_process import ForkedProcess  # noqa: E402
from toy_models import byte_level, llama, relative  # noqa: E402

from specviz import Pair, race  # noqa: E402
from specviz.core.events import Event  # noqa: E402
from specviz.page import live  # noqa: E402
from specviz.page.delivery import stream_deltas  # noqa: E402
from specviz.page.jobs import Run  # noqa: E402
from specviz.page.queue import RunQueue  # noqa: E402
from specviz.page.server import build_page  # noqa: E402
from specviz.worker import client  # noqa: E402
from specviz.worker.local import LocalWorker  # noqa: E402

# About a millisecond per pass, so that tests wait little. Runs that must last are UNHURRIED.
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 3,
    "max_position_embeddings": 2048,
}
PAUSE = 0.05  # seconds after each event of an unhurried run
LOSSY = "lose some of it"
UNHURRIED = "take your time"


async def lossy(queue: RunQueue, run: Run) -> AsyncIterator[dict[str, Any]]:
    """The deltas of a run; many of them get lost if the prompt contains `LOSSY`."""
    async with aclosing(stream_deltas(queue, run)) as stream:
        async for delta in stream:
            if LOSSY not in run.prompt or delta["over"] or delta["next"] % 3 == 1:
                yield delta


def small_pair(name: str, _: Any = None) -> Pair:
    """A small target, and a draft that sometimes agrees with it."""
    tokenizer = byte_level(300)
    target = llama(300, **SHAPE)
    return Pair(target=target, draft=relative(target, noise=0.02), tokenizer=tokenizer, name=name)


def unhurried(pair: Pair, prompt: str, settings: Any) -> Iterator[Event]:
    """A race; if the prompt contains `UNHURRIED`, it lasts long enough for a stalled test."""
    heard = None
    with closing(race(pair, prompt, settings)) as events:  # type: ignore[type-var]
        while True:
            try:
                event = events.send(heard)
            except StopIteration:
                return
            if UNHURRIED in prompt:
                time.sleep(PAUSE)
            heard = yield event


def fork_the_doctor() -> None:
    """Fork the doctor's process from one that has imported the libraries."""
    client.subprocess = SimpleNamespace(Popen=ForkedProcess, PIPE=None)  # type: ignore[assignment]


if __name__ == "__main__":
    live.stream_deltas = lossy
    fork_the_doctor()
    # Without recordings, the page waits for its first run.
    build_page(LocalWorker(small_pair, unhurried), recordings=TESTS / "none").serve(quiet=True)
    signal.pause()
