"""Progress of downloads and of loading, as sentences instead of bars on the terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from tqdm.std import tqdm
from transformers.utils import logging as transformers_logging

from .sizes import shown_bytes


@dataclass(frozen=True)
class Progress:
    """What is being done, and which part of it is done already, 0 to 1; None if nobody knows."""

    sentence: str
    fraction: float | None = None


Watcher = Callable[[Progress], None]


def terminal_watcher(stream: TextIO | None = None) -> Watcher:
    """Shows progress on a terminal as one bar, and anywhere else as a line for each new step."""
    out = stream or sys.stderr
    last: list[tuple[str, int]] = []

    def show(progress: Progress) -> None:
        percent = int(100 * (progress.fraction or 0.0))
        now = (progress.sentence, percent if out.isatty() else 0)
        if [now] == last:
            return
        last[:] = [now]
        if not out.isatty():
            print(progress.sentence, file=out, flush=True)
            return
        bar = "█" * (percent // 5)
        out.write(f"\r\x1b[K{bar:░<20} {percent:3d} % {progress.sentence}")
        out.write("\r\x1b[K" if progress.fraction == 1.0 else "")
        out.flush()

    return show


@contextmanager
def watched(report: Watcher | None, model: str) -> Iterator[dict[str, Any]]:
    """While it lasts, transformers tells `report` how far it is with this model.

    Gives the options that `from_pretrained` needs for that. One load at a time: the bar that
    weights are counted with belongs to the whole process.
    """
    if report is None:
        yield {}
        return

    def told(what: str, done: float, total: float | None, unit: str) -> None:
        size = shown_bytes(total) if total and unit == "B" else None
        sentence = f"{what} {model}" + (f" ({size})" if size else "")
        report(Progress(sentence, min(1.0, done / total) if total else None))

    class Download(_SilentBar):
        def told(self, done: float) -> None:
            told("downloading", done, self.total, self.unit)

    class Weights(_SilentBar):
        def told(self, done: float) -> None:
            told("loading", done, self.total, self.unit)

    previous = transformers_logging.set_tqdm_hook(
        lambda _, args, options: Weights(*args, **options)
    )
    try:
        yield {"tqdm_class": Download}
    finally:
        transformers_logging.set_tqdm_hook(previous)


class _SilentBar(tqdm):
    """A progress bar that draws nothing and tells its place."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options.pop("name", None)  # the hub's own addition
        super().__init__(*args, **{**options, "file": io.StringIO(), "disable": False})

    def told(self, done: float) -> None:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        for item in self.iterable:
            yield item
            self.update(1)

    def update(self, n: float | None = 1) -> bool | None:
        drawn: bool | None = super().update(n)
        self.told(self.n)
        return drawn
