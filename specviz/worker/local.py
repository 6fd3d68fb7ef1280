"""The worker that runs tasks in the caller's thread: in the models' process, and on ZeroGPU."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any

from ..base.errors import PairError, SpecvizError, in_one_line, ran_out_of_memory
from ..core.stopping import Stopped, stoppable
from .failures import sentence_of
from .loading import LoadPair, Models, Race, memory_in_numbers
from .tasks import Stop, Task

log = logging.getLogger(__name__)


class LocalWorker:
    """Runs tasks in the caller's thread. It has no heartbeats."""

    def __init__(self, load_pair: LoadPair, race: Race) -> None:
        self._models = Models(load_pair, race)

    def run(self, task: Task, stop: Stop | None = None) -> Generator[Any, None, None]:
        stop = stop or Stop()
        try:
            with stoppable(stop.is_set):
                yield from task.run(self._models, stop)
        except Stopped:
            return
        except SpecvizError as error:
            if ran_out_of_memory(error) and not isinstance(error, PairError):
                raise SpecvizError(_sentence_with_numbers(error, task.pair)) from error
            if error.__cause__ is not None:  # it is not pickled with the error
                log.warning("a task for the pair %r failed: %s", task.pair, in_one_line(error))
            raise
        except Exception as error:
            log.exception("a task failed")
            raise SpecvizError(_sentence_with_numbers(error, task.pair)) from error

    def close(self) -> None:
        pass


def _sentence_with_numbers(error: Exception, pair: str) -> str:
    """The sentence for the visitor about an error. If memory ran out, it also says how much memory
    the pair takes."""
    sentence = sentence_of(error)
    if not ran_out_of_memory(error):
        return sentence
    try:
        return f"{sentence} {memory_in_numbers(pair)}".rstrip()
    except Exception:
        log.exception("the doctor could not estimate the memory")
        return sentence
