"""The updates of a run on their way to its visitor, whose handler reads them."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing

from ..errors import SpecvizError
from .jobs import Run
from .queue import RunQueue
from .wire import Update

TICK = 0.1  # seconds between updates; each costs the browser a frame, and a core may be short
HEARTBEAT = 0.5  # seconds after which an empty update is sent, so that a closed tab is noticed


def updates(runs: RunQueue, run: Run) -> Generator[Update, None, None]:
    """Submit a run and yield its updates, at most one per `TICK`, until it is over.

    Closing the generator stops the run.
    """
    status = "Getting ready."
    yield run.update(status)
    try:
        runs.submit(run)
    except SpecvizError as refusal:
        run.error, run.fall_back = str(refusal), True
        yield run.update(over=True)
        return
    sent = time.monotonic()
    try:
        while not run.delivered:
            time.sleep(TICK)
            update = run.next_update()
            if update is None:
                reason = status if run.racing else runs.status_of(run)
                if reason != status or time.monotonic() - sent > HEARTBEAT:
                    runs.clean_up()
                    status = reason
                    update = run.update() if run.racing else run.update(status)
            if update is not None:
                sent = time.monotonic()
                yield update
    finally:
        runs.cancel(run)


def deltas(runs: RunQueue, run: Run) -> Generator[str, None, None]:
    """The updates of a run as deltas for the browser. Closing the generator stops the run."""
    with closing(updates(runs, run)) as stream:
        for update in stream:
            yield run.delta(update)
