"""Tasks that misbehave, for a worker in a process of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from specviz.tasks import Models, Take


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


def results(worker: Any, what: str) -> list[Any]:
    """All that a task handed out."""
    taken: list[Any] = []

    def take(item: Any) -> bool:
        taken.append(item)
        return True

    worker.run(Odd(what), take)
    return taken
