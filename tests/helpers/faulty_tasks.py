"""Tasks that misbehave, for a worker in a process of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specviz import Settings
from specviz.worker.client import results_of
from specviz.worker.loading import Models, Status
from specviz.worker.tasks import RaceTask, Stop


@dataclass(frozen=True)
class Odd:
    """A task that does what its name says."""

    what: str
    pair: str = "builtin"

    def run(self, models: Models, stop: Stop) -> Iterator[Any]:
        yield from getattr(self, self.what)(stop)

    def tell_process(self, stop: Stop) -> Iterator[int]:
        yield os.getpid()

    def die(self, stop: Stop) -> Iterator[str]:
        yield "last words"
        os._exit(3)

    def fail(self, stop: Stop) -> Iterator[Any]:
        raise ZeroDivisionError

    def break_the_device(self, stop: Stop) -> Iterator[Any]:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def chatter(self, stop: Stop) -> Iterator[str]:
        print("a library that prints", flush=True)
        os.write(1, b"and one that writes")
        yield "heard"

    def count_for_ever(self, stop: Stop) -> Iterator[int]:
        count = 0
        while not stop.is_set():
            yield count
            count += 1

    def hand_out_what_cannot_travel(self, stop: Stop) -> Iterator[Any]:
        yield lambda: None

    def hang(self, stop: Stop) -> Iterator[str]:
        yield "from here on nothing comes"
        time.sleep(3600)

    def load_for_ever(self, stop: Stop) -> Iterator[str]:
        yield Status.LOADING
        time.sleep(3600)

    def load_until_told(self, stop: Stop) -> Iterator[Any]:
        """Load until a file with the pair's name exists."""
        yield Status.LOADING
        while not os.path.exists(self.pair):
            time.sleep(0.05)
        yield os.getpid()


def results(worker: Any, what: str) -> list[Any]:
    """Run a task, and return all its results."""
    return list(results_of(worker, Odd(what)))


HANGS = "The next pass hangs."


@dataclass(frozen=True)
class FaultyRace:
    """A race of two tiny models in which a pass of the target fails after some rounds."""

    fault: str
    after: int
    settings: Settings
    pair: str = "tiny"
    prompt: str = "w1 w2"

    def run(self, models: Models, stop: Stop) -> Iterator[Any]:
        from toy_models import mini, pair_of

        from specviz import race
        from specviz.core.events import Round

        target = mini(5, spread=2.0)
        rounds = 0

        def hurt(module: Any, arguments: Any, output: Any) -> Any:
            return output if rounds < self.after else self._hurt(output)

        target.register_forward_hook(hurt)
        pair = pair_of(target, mini(5, seed=1, spread=2.0))
        own = Models(lambda *_: pair, race)
        for item in RaceTask(self.pair, self.prompt, self.settings).run(own, stop):
            yield item
            rounds += isinstance(item, Round)
            if self.fault == "hang" and rounds >= self.after:
                yield HANGS

    def _hurt(self, output: Any) -> Any:
        import torch

        if self.fault == "memory of the device":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if self.fault == "memory of the machine":
            raise MemoryError
        if self.fault == "allocator":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")
        if self.fault == "device":
            raise RuntimeError("CUDA error: unspecified launch failure")
        if self.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "hang":
            time.sleep(3600)
        if self.fault == "slow":
            time.sleep(0.02)
        if self.fault == "very slow":
            time.sleep(0.3)
        if self.fault == "nan":
            output.logits = output.logits * float("nan")
        return output
