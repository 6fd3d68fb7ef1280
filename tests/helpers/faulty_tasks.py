"""Tasks that misbehave, for a worker in a process of its own."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from specviz import Settings
from specviz.worker.tasks import LOADING, Models, RaceTask, Take


@dataclass(frozen=True)
class Odd:
    """Does what its name says."""

    what: str
    pair: str = "builtin"

    def run(self, models: Models, take: Take) -> None:
        getattr(self, self.what)(take)

    def tell_process(self, take: Take) -> None:
        take(os.getpid())

    def die(self, take: Take) -> None:
        take("last words")
        os._exit(3)

    def fail(self, take: Take) -> None:
        raise ZeroDivisionError

    def break_the_device(self, take: Take) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def chatter(self, take: Take) -> None:
        print("a library that prints", flush=True)
        os.write(1, b"and one that writes")
        take("heard")

    def count_for_ever(self, take: Take) -> None:
        count = 0
        while take(count):
            count += 1

    def hand_out_what_cannot_travel(self, take: Take) -> None:
        take(lambda: None)

    def hang(self, take: Take) -> None:
        take("from here on nothing comes")
        time.sleep(3600)

    def load_for_ever(self, take: Take) -> None:
        take(LOADING)
        time.sleep(3600)

    def load_until_told(self, take: Take) -> None:
        """Until there is a file of the pair's name."""
        take(LOADING)
        while not os.path.exists(self.pair):
            time.sleep(0.05)
        take(os.getpid())


def results(worker: Any, what: str) -> list[Any]:
    """All that a task handed out."""
    taken: list[Any] = []

    def take(item: Any) -> bool:
        taken.append(item)
        return True

    worker.run(Odd(what), take)
    return taken


HANGS = "The next pass hangs."


@dataclass(frozen=True)
class FaultyRace:
    """A race of two tiny models in which a pass of the target, after so many rounds, goes wrong."""

    fault: str
    after: int
    settings: Settings
    pair: str = "tiny"
    prompt: str = "w1 w2"

    def run(self, models: Models, take: Take) -> None:
        from toy_models import mini, pair_of

        from specviz import race
        from specviz.trace import Round

        target, rounds = mini(5, spread=2.0), [0]

        def counted(item: Any) -> bool:
            rounds[0] += isinstance(item, Round)
            return take(item)

        def hurt(module: Any, arguments: Any, output: Any) -> Any:
            if rounds[0] < self.after:
                return output
            if self.fault == "hang":
                take(HANGS)
            return self._hurt(output)

        target.register_forward_hook(hurt)
        pair = pair_of(target, mini(5, seed=1, spread=2.0))
        own = Models(lambda *_: pair, race)
        RaceTask(self.pair, self.prompt, self.settings).run(own, counted)

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
        if self.fault == "nan":
            output.logits = output.logits * float("nan")
        return output
