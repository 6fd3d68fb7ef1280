"""The models' process: what it does from its first line to its last."""

from __future__ import annotations

import gc
import logging
import os
import pickle  # nosec B403
import queue
import signal
import sys
import threading
from typing import Any, Literal, NoReturn

from ..errors import SpecvizError
from ..logs import set_up_logging
from .client import LocalWorker, write_message
from .failures import is_fatal
from .tasks import Task, load_named

log = logging.getLogger(__name__)


def serve() -> None:
    """The life of the process: tasks from stdin, replies to stdout, until stdin ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not land among the replies
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the page's, which ends this too
    set_up_logging()
    orders = _Orders()
    threading.Thread(target=orders.listen, daemon=True).start()

    # Only now: the page is told nothing until they are here, but may already ask.
    from ..decoding.race import race
    from ..engines.base import spare_threads

    spare_threads()
    worker = LocalWorker(load_named, race)

    def reply(kind: Literal["item", "done", "error", "leaving"], value: Any = None) -> None:
        write_message(replies, (kind, value))

    while True:
        number, task = orders.tasks.get()

        def take(item: Any, number: int = number) -> bool:
            reply("item", item)
            return orders.stopped < number

        try:
            worker.run(task, take)
        except SpecvizError as error:
            if is_fatal(error):
                reply("leaving", error)
                os._exit(1)
            reply("error", error)
        else:
            reply("done")
            continue
        _free_memory()


class _Orders:
    """What the process was told. stopped: the number of the last task that need not go on; they
    are numbered, for a stop may come late, or before its task has begun."""

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[tuple[int, Task]] = queue.SimpleQueue()
        self.stopped = 0

    def listen(self) -> NoReturn:
        """Hear orders until there is nobody left to give any; then the process ends."""
        try:
            commands = os.fdopen(os.dup(0), "rb")
            while True:
                number, task = pickle.load(commands)  # nosec B301
                if task is None:
                    self.stopped = number
                else:
                    self.tasks.put((number, task))
        except (EOFError, OSError):
            os._exit(0)  # whoever asked is gone
        except BaseException:
            log.exception("a task could not be understood")
            os._exit(1)


def _free_memory() -> None:
    """After a failure: its traceback held on to what was being computed."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
