"""The page's streams for tests without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import orjson

from specviz.page import delivery
from specviz.page.jobs import Run
from specviz.page.queue import RunQueue


class Stepped:
    """Iterates over an asynchronous generator, and closes it.

    Steps run in a thread, because that of the tests may have an event loop already.
    """

    def __init__(self, generator: AsyncGenerator[Any, None]) -> None:
        self._generator = generator
        self._loop = asyncio.new_event_loop()
        self._thread = ThreadPoolExecutor(1)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._loop.is_closed():
            raise StopIteration
        try:
            return self._do(_next(self._generator))
        except StopAsyncIteration:
            self.close()
            raise StopIteration from None

    def _do(self, step: Coroutine[Any, Any, Any]) -> Any:
        return self._thread.submit(self._loop.run_until_complete, step).result()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._do(self._generator.aclose())
            self._loop.close()
            self._thread.shutdown()


async def _next(generator: AsyncGenerator[Any, None]) -> Any:
    return await anext(generator)


def deltas(queue: RunQueue, run: Run) -> Iterator[str]:
    """Yield the deltas of a run, as JSON."""
    with closing(Stepped(delivery.stream_deltas(queue, run))) as stream:
        for delta in stream:
            yield orjson.dumps(delta).decode()
