"""The page for programs: `generate`, `race` and `doctor`, through the same line as visitors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import gradio as gr

from ..errors import PairError, PromptError, SpecvizError
from ..report.metrics import compute_metrics
from ..settings import Settings
from ..trace import LANES, SCHEMA, Trace
from .choices import chosen_pair, others_allowed
from .doctor import Doctor
from .jobs import Run
from .queue import Engine, deltas
from .security.errors import sentence

RUNS = 2  # of programs that may be in the line at a time: visitors must not wait behind many
EXAMINATIONS = 4  # that may wait for the doctor at a time
MOST_CHARACTERS = 8000  # of a prompt, as many as the page lets anyone write
MOST_NAME = 300  # characters of a pair's name
FIELDS = ("header", "rounds", "end", "status")

Checked = Callable[[dict[str, Any]], Settings]


def add_api(engine: Engine, examiner: Doctor, own: str, checked: Checked) -> None:
    """Add the endpoints to the current page. own: the pair that it was started with; checked:
    makes settings that the page allows."""

    def started(prompt: str, pair: str, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
        try:
            settings = checked({**values, "stop": values["stop"] or ()})
            name = asked_pair(pair, own)
            # A name that nobody else has: a program may ask for several runs.
            run = Run(f"api-{uuid4().hex}", name, checked_prompt(prompt), settings)
        except SpecvizError as error:
            raise sentence(str(error)) from None
        yield from told(deltas(engine, run))

    def race(
        prompt: str,
        pair: str = own,
        gamma: int = 5,
        temperature: float = 0.7,
        top_k: int = 0,
        top_p: float = 1.0,
        max_new_tokens: int = 128,
        seed: int = 1,
        drafter: str = "model",
        gamma_policy: str = "fixed",
        chat: str = "auto",
        stop: list[str] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Race both lanes on a prompt and stream what happens, about ten times a second: each value
        holds any of "status" (a sentence), "header", "rounds" (new ones) and "end"."""
        yield from started(prompt, pair, settings_of(locals()))

    def generate(
        prompt: str,
        pair: str = own,
        gamma: int = 5,
        temperature: float = 0.7,
        top_k: int = 0,
        top_p: float = 1.0,
        max_new_tokens: int = 128,
        seed: int = 1,
        drafter: str = "model",
        gamma_policy: str = "fixed",
        chat: str = "auto",
        stop: list[str] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Race both lanes on a prompt: the result holds "text" (the continuation), "metrics" and
        "trace" (the run as a recording has it). Until then there are values with a "status"."""
        yield from gathered(started(prompt, pair, settings_of(locals())))

    def doctor(pair: str = own) -> dict[str, Any]:
        """Whether two models can race each other here, before any weights are fetched: "verdict"
        (good, warning or stop), "summary" and "findings"."""
        try:
            return examiner.examine(asked_pair(pair, own))
        except SpecvizError as error:
            raise sentence(str(error)) from None

    for endpoint in (generate, race):
        gr.api(endpoint, concurrency_limit=RUNS, concurrency_id="api")
    gr.api(doctor, concurrency_limit=EXAMINATIONS)


def settings_of(values: dict[str, Any]) -> dict[str, Any]:
    """The settings among an endpoint's arguments."""
    names = Settings.__dataclass_fields__
    return {name: value for name, value in values.items() if name in names}


def asked_pair(name: object, own: str) -> str:
    """The pair of this name, if it is offered here or any may be named. Raises `PairError`."""
    if not isinstance(name, str) or len(name) > MOST_NAME:
        raise PairError("The pair has no name that can be read: use a text such as 'builtin'.")
    try:
        return chosen_pair(name, "", "", own=own)
    except PairError:
        if not others_allowed() or "+" not in name:
            raise
    return name.strip()


def checked_prompt(prompt: object) -> str:
    """The prompt, if it is a text that the page would take. Raises `PromptError`."""
    if not isinstance(prompt, str):
        raise PromptError("The prompt is no text: send a string.")
    if len(prompt) > MOST_CHARACTERS:
        raise PromptError(f"The prompt has {len(prompt)} characters: use up to {MOST_CHARACTERS}.")
    return prompt


def told(texts: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Deltas of the page as a program reads them, with rounds as a recording has them.

    A delta of nothing stays a value, {}: whoever has left is only noticed by sending. Raises
    `gr.Error` with the run's sentence.
    """
    try:
        for text in texts:
            delta = json.loads(text)
            if "rounds" in delta:
                delta["rounds"] = [_whole(one) for one in delta["rounds"]]
            said = {name: delta[name] for name in FIELDS if name in delta}
            if said or not delta["over"]:
                yield said
            if delta.get("error"):
                raise sentence(delta["error"])
    finally:
        texts.close()  # type: ignore[attr-defined]


def gathered(events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What was said while a run was under way, and last of all the run as one value."""
    data: dict[str, Any] = {"schema": SCHEMA, "header": None, "rounds": [], "end": None}
    said = ""
    try:
        for event in events:
            data["rounds"] += event.get("rounds", [])
            data |= {name: event[name] for name in ("header", "end") if name in event}
            said = event.get("status", said)
            rounds = len(data["rounds"])
            yield {"status": f"{rounds} rounds so far." if rounds else said}
    finally:
        events.close()  # type: ignore[attr-defined]
    trace = Trace.from_dict(data)
    yield {
        "text": trace.text("speculative"),
        "texts": {lane: trace.text(lane) for lane in LANES},
        "metrics": asdict(compute_metrics(trace)),
        "trace": trace.to_dict(),
    }


def _whole(wire: dict[str, Any]) -> dict[str, Any]:
    """A round with all that it emitted, and tokens without empty fields."""
    drafted = [_known(token) for token in wire["drafted"]]
    kept = drafted[: wire.pop("kept")]
    return {**wire, "drafted": drafted, "emitted": kept + [_known(t) for t in wire["emitted"]]}


def _known(token: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in token.items() if value is not None and value != []}
