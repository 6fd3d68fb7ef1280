"""The order of a race: its warm-up, whose turn it is, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from .events import End, EndReason, Round, agreement_of
from .lanes import BASELINE, Lane
from .loop import LaneOptions, decode
from .model_facts import context_length
from .pair import Pair
from .registry import drafter_kind, engine_kind
from .settings import Settings
from .stopping import check_stop
from .types import LaneEvents, Prefilled

Reasons: TypeAlias = dict[str, EndReason]

WARM_ROUNDS = 3  # per lane: allocators, thread pools and kernels settle within two
WARM_TOKENS = 4  # of the prompt, twice: longer than the runs of n-grams
WARM_SECONDS = 0.3  # per lane: no further round begins after these, since slow rounds settle in one

_stays_warm: WeakKeyDictionary[Any, set[object]] = WeakKeyDictionary()
"""By target: the kinds of lanes that need no further warm-up in this process."""


def warm_up(
    pair: Pair, prompt_ids: list[int], settings: Settings, lane: Lane, hidden_states: bool
) -> None:
    """Run a lane for a few rounds, which are dropped. Raises `Stopped`.

    Every race does this, since a fast lane's warm-up is short. A slow lane (`WARM_SECONDS`) with an
    engine that `warms_once` needs it only once in a process: its code is loaded then, and reading
    a prompt, which every lane begins with, wakes the threads. The baseline needs none of its own
    after such a lane with drafts.
    """
    stays_warm = _stays_warm.setdefault(pair.target, set())
    kind = (settings.drafter, settings.verdict, settings.greedy, hidden_states)
    if kind in stays_warm or (lane == BASELINE and stays_warm):
        return
    few_tokens = replace(settings, max_new_tokens=WARM_ROUNDS * (settings.gamma + 1), stop=())
    # A short prompt is enough, and leaves room in the context. It repeats itself, so that n-grams
    # are found and passes of several tokens are warmed up too; a draft model needs no more than
    # its own drafts for that.
    tokens = 1 if drafter_kind(settings.drafter).needs == "draft" else WARM_TOKENS
    short_prompt = (2 * prompt_ids[:tokens])[: context_length(pair.target)]
    events = decode(pair, short_prompt, few_tokens, lane, LaneOptions(hidden_states=hidden_states))
    with closing(events):
        began = time.perf_counter()
        engine = prefilled(events).engines["target"]
        for _ in islice(events, WARM_ROUNDS):
            check_stop()
            if time.perf_counter() - began > WARM_SECONDS:
                if engine_kind(engine).warms_once and lane != BASELINE:
                    stays_warm.add(kind)
                return


def prefilled(events: LaneEvents) -> Prefilled:
    """Run the prefill of a lane and return its event."""
    first = next(events)
    assert isinstance(first, Prefilled)
    return first


def interleaved(lanes: dict[Lane, LaneEvents], reasons: Reasons) -> Generator[Round]:
    """Run the rounds of all lanes in the order of their clocks.

    A lane's next round is held back until no other lane can finish one before it; the lane whose
    round was yielded last is behind, and runs next.
    """
    held_back: dict[Lane, Round] = {}
    due_lanes = list(lanes)
    try:
        while True:
            for lane in due_lanes:
                finished = _next_round(lane, lanes[lane], reasons)
                if finished is not None:
                    held_back[lane] = finished
            # With equal clocks, the lane that is named first runs.
            ready = [held_back[lane] for lane in lanes if lane in held_back]
            if not ready:
                return
            first = min(ready, key=lambda round_: round_.clock)
            del held_back[first.lane]
            due_lanes = [first.lane]
            yield first
    except Exception:
        # One lane's finished round is kept when another lane fails.
        yield from (held_back[lane] for lane in lanes if lane in held_back)
        raise


def one_by_one(lanes: dict[Lane, LaneEvents], reasons: Reasons) -> Generator[Round]:
    """Run all rounds of one lane, then those of the next."""
    for lane, events in lanes.items():
        while (finished := _next_round(lane, events, reasons)) is not None:
            yield finished


ORDERS = {"interleaved": interleaved, "sequential": one_by_one}
"""The order in which the lanes run, by mode."""


def _next_round(lane: Lane, events: LaneEvents, reasons: Reasons) -> Round | None:
    """Run the lane's next round; if it has ended, note why in `reasons` and return None."""
    try:
        event = next(events)
    except StopIteration as stop:
        reasons[lane] = stop.value
        return None
    assert isinstance(event, Round)
    return event


def note_stop(last: Lane, lanes: dict[Lane, LaneEvents], reasons: Reasons) -> None:
    """Note why each lane ends in a race that stops after a round of `last`, which may have been
    that lane's last one anyway."""
    if last not in reasons:
        try:
            lanes[last].send(True)
        except StopIteration as stop:
            reasons[last] = stop.value
    for lane in lanes:
        # Nobody has seen what the lane computed beyond its last yielded round.
        reasons.setdefault(lane, "stopped")


def end_of(rounds: dict[str, list[Round]], reasons: Reasons, settings: dict[Lane, Settings]) -> End:
    """Make the `End` of a race, with the agreement of its lanes where they should agree."""
    if not settings[BASELINE].greedy:
        return End(reasons)
    alone = rounds[BASELINE]
    lanes = [lane for lane in rounds if lane != BASELINE]
    return End(reasons, {lane: agreement_of(rounds[lane], alone) for lane in lanes})
