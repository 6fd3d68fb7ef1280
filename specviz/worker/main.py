"""The models' process, from its start to its end."""

from __future__ import annotations

import gc
import logging
import os
import queue
import signal
import sys
import threading
from typing import Any, NoReturn, TypeAlias

from ..base.environment import collector_paused
from ..base.errors import SpecvizError
from ..base.logs import adopt_libraries, set_up_logging
from .failures import is_fatal, sentence_of
from .loading import load_named
from .local import LocalWorker
from .messages import ReplyKind, read_message, write_message
from .tasks import Stop, Task

log = logging.getLogger(__name__)

Tasks: TypeAlias = "queue.SimpleQueue[tuple[Task, Stop]]"


def serve() -> None:
    """Run the tasks that come on stdin and write replies to stdout, until stdin ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not mix with the replies
    # Both may be sent to all processes of a group at once; the page ends this one when it is time.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    set_up_logging()
    tasks: Tasks = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()

    # Imported only now, because that takes seconds: tasks may be sent meanwhile.
    with collector_paused():
        from ..core.race import race
        from ..core.threads import leave_one_to_the_page, limit_torch_threads

    limit_torch_threads()
    leave_one_to_the_page()
    adopt_libraries()
    worker = LocalWorker(load_named, race)

    def reply(kind: ReplyKind, value: Any = None) -> None:
        write_message(replies, (kind, value))

    while True:
        task, stop = tasks.get()
        try:
            for result in worker.run(task, stop):
                reply("result", result)
        except Exception as error:
            if is_fatal(error):
                reply("leaving", _for_visitor(error))
                os._exit(1)
            reply("error", _for_visitor(error))
        else:
            reply("done")
            continue
        gc.collect()  # what the traceback of the failed task kept in memory
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def _for_visitor(error: Exception) -> SpecvizError:
    """The error itself if it is a `SpecvizError`; otherwise one with a sentence for the visitor. A
    result that cannot be pickled raises errors of other types."""
    if isinstance(error, SpecvizError):
        return error
    log.error("a result could not be sent", exc_info=error)
    return SpecvizError(sentence_of(error))


def _listen(tasks: Tasks) -> NoReturn:
    """Read tasks, and None for "stop the last one", until the page's process has ended; then end
    this process too. A stop can come before its task begins, or after it has ended."""
    stop = Stop()
    try:
        commands = os.fdopen(os.dup(0), "rb")
        while True:
            task = read_message(commands)
            if task is None:
                stop.set()
            else:
                stop = Stop()
                tasks.put((task, stop))
    except (EOFError, OSError):
        os._exit(0)
    except BaseException:
        log.exception("a task could not be read")
        os._exit(1)
