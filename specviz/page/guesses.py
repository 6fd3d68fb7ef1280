"""What the loaded draft would have got right of a text that a visitor pastes: a queued job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from ..environment import on_zerogpu
from ..errors import PromptError, SettingsError, SpecvizError
from ..inspect.guesses import NAME, UNITS, WHY, Guesses
from ..worker.failures import FAILED
from ..worker.guesses import Guessed, GuessTask
from .controls import MOST_CHARACTERS
from .experiment import Polled
from .jobs import Run
from .queue import RunQueue

NOT_LENT = "this page is lent its GPU for races alone: run specviz guess on your own machine."


class Guessing(Polled):
    """Guesses a text, a few places per pass."""

    def __init__(self, session: str, task: GuessTask) -> None:
        super().__init__(session, task)
        self._done = 0
        self._guesses: Guesses | None = None

    def add(self, item: Any) -> None:
        super().add(item)
        if isinstance(item, Guessed):
            self._done = item.places
        elif isinstance(item, Guesses):
            self._guesses = item

    def progress(self, waiting: str) -> dict[str, Any]:
        done = f"{self._done} tokens guessed." if self._done else ""
        return {"status": done or self.said or waiting}

    def found(self) -> dict[str, Any] | None:
        one = self._guesses
        if one is None:
            return None
        places = [list(place) for place in one.places]
        told = {"draft": one.draft, "before": one.before, "left_out": one.left_out}
        return {**told, "places": places, "name": NAME, "why": WHY, "units": UNITS}


def guess_functions(runs: RunQueue, pair: str) -> list[Callable[[dict[str, Any]], Any]]:
    """The server function that begins it; the experiment's ask for its state and end it.

    pair: the pair for visitors without a run.
    """

    def begin_guesses(asked: dict[str, Any]) -> dict[str, Any]:
        try:
            if on_zerogpu():
                raise SettingsError(NOT_LENT)
            run = runs.job(str(asked.get("run")))
            if run is not None and not run.over:
                raise SettingsError("your run is still under way: wait for its end, or stop it.")
            # A visitor without a run has no session yet.
            known = (run.session, run.task.pair) if isinstance(run, Run) else (uuid4().hex, pair)
            session, name = known
            text, prompt = _checked(asked.get("text")), _checked(asked.get("prompt"))
            task = GuessTask(name, text, prompt, asked.get("continues") is True)
            job = Guessing(session, task)
            runs.submit(job)
        except SpecvizError as error:
            return {"over": True, "error": str(error)}
        except (AttributeError, KeyError, TypeError, ValueError):
            return {"over": True, "error": FAILED}
        return job.state(runs.status_of(job))

    return [begin_guesses]


def _checked(text: Any) -> str:
    """A visitor's text. Raises `PromptError` if it is none or too long."""
    if not isinstance(text, str):
        raise PromptError("this is no text: paste what the model wrote.")
    if len(text) > MOST_CHARACTERS:
        raise PromptError(
            f"this text has {len(text):,} characters: paste up to {MOST_CHARACTERS:,} of them."
        )
    return text
