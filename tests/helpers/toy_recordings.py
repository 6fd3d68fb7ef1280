"""Recorded runs of toy models, and the first rounds of reruns."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from toy_models import llama, pair_of, relative

from specviz import Pair, Settings, Trace, race
from specviz.base.errors import TraceError
from specviz.core.events import Event, Header, Round
from specviz.core.lanes import BASELINE
from specviz.runs.recording import read_recording
from specviz.runs.rerun import rerun_events

SAMPLED = Settings(gamma=4, temperature=1.0, max_new_tokens=16, seed=11)
GREEDY = Settings(gamma=4, max_new_tokens=16)


def toy_pair(**config: Any) -> Any:
    target = llama(40, seed=0, **config)
    return pair_of(target, relative(target, noise=0.2))


@cache
def recorded(settings: Settings, mode: Any = "interleaved") -> Trace:
    """Record a race of `toy_pair`."""
    return Trace.from_events(race(toy_pair(), [1, 2, 3], settings, mode=mode))


def values(settings: Settings) -> dict[str, Any]:
    """Copy the JSON values of a run, for a test to edit."""
    copy: dict[str, Any] = orjson.loads(orjson.dumps(recorded(settings).to_dict()))
    return copy


def saved(trace: Trace, folder: Path, name: str = "run.json.gz") -> bytes:
    """Save a trace; returns the bytes of the file."""
    trace.save(folder / name)
    return (folder / name).read_bytes()


def beginning(trace: Trace, rounds: int) -> Trace:
    """The first rounds of each lane, without an end."""
    return Trace(trace.header, [r for r in trace.rounds if r.index < rounds])


def rerun_beginning(header: Header, pair: Pair, rounds: int) -> Trace:
    """Rerun a recorded race until each lane has this number of rounds."""
    lanes = {BASELINE, *header.lanes}
    run: list[Event] = []
    for event in rerun_events(header, pair):
        run.append(event)
        if isinstance(event, Round) and event.index == rounds - 1:
            lanes -= {event.lane}
        if not lanes:
            break
    return beginning(Trace.from_events(run), rounds)


def sentence(raw: bytes, **limits: int) -> str:
    """The sentence that rejects a file: a short line, safe in a terminal and in HTML."""
    with pytest.raises(TraceError) as caught:
        read_recording(raw, **limits)
    said = str(caught.value)
    assert said.isprintable() and len(said) < 250 and not set("<>&") & set(said)
    assert said.endswith(".")
    return said
