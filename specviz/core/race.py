"""All lanes on one device, each with its own clock."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

from ..errors import SettingsError
from ..kinds import drafter_kind
from ..lanes import BASELINE, SPECULATIVE, Lane, Several, checked_lanes
from ..pairs.pair import Pair, Racing, checked_pair, context_length
from ..settings import Settings
from .drafting import EarlierTexts, Memory, memory_described, memory_ids
from .events import End, EndReason, Event, Round, agreement_of
from .header import header_of
from .loop import decode, settings_for
from .types import LaneEvents, Mode, Prefilled, Prompt
from .verdict import Decide

Reasons: TypeAlias = dict[str, EndReason]

WARM_ROUNDS = 3  # per lane; allocators, thread pools and kernels settle within two


def race(
    pair: Pair | Racing,
    prompt: Prompt,
    settings: Settings | Several | None = None,
    *,
    mode: Mode = "interleaved",
    decider: Decide | None = None,
    memory: Memory = (),
    **changes: Any,
) -> Iterator[Event]:
    """Race the target alone against the same target with drafts.

    Without settings they are those of `Pair.settings`. With one `Settings` the lanes are
    "speculative" and "baseline". With several, by the names of their lanes or in a sequence (names
    are then made of what differs), each has a lane beside the baseline; they may differ only in how
    they draft (`lanes.SHARED` lists what must be equal).

    Yields a `Header`, then the `Round`s of all lanes, then an `End`. In mode "interleaved", the
    lane whose clock is behind runs next and rounds come in clock order; in mode "sequential", one
    lane runs after the other. All lanes are warmed up first; prefill is in the header, apart from
    the clocks. `decider` replaces the verdict of the settings in benchmarks of speed.
    memory: earlier texts, as text or ids, that the drafter "suffix" may draft from. They are read
    before the clocks begin; the header says how many.
    changes: fields of `Settings`, such as gamma=5, for a race of two lanes.
    What is no `Pair` and races by itself, such as a watched server, has a method `race` of its own.
    Raises `SpecvizError` subclasses. Closing the generator stops all lanes within a round; so
    does sending it True after a round, which yields the `End`.
    """
    if not hasattr(pair, "race"):
        checked_pair(pair)
    if settings is None or changes:
        settings = settings_for(pair, settings, changes)  # type: ignore[arg-type]
    lanes = checked_lanes(settings)
    if not isinstance(pair, Pair) and hasattr(pair, "race"):
        return pair.race(prompt, lanes, memory)
    pair = checked_pair(pair)
    if mode not in ("interleaved", "sequential"):
        raise SettingsError(f"mode is {mode!r}: use 'interleaved' or 'sequential'.")
    first = next(iter(lanes.values()))
    prompt_ids = pair.encode(prompt, chat=first.chat)
    texts = memory_ids(pair, memory, lanes.values())
    asked = str(prompt).strip() if pair.uses_template(prompt, first.chat) else ""
    return _race(pair, prompt_ids, {**lanes, BASELINE: first}, mode, decider, texts, asked)


def _race(
    pair: Pair,
    prompt_ids: list[int],
    settings: dict[Lane, Settings],
    mode: Mode,
    decider: Decide | None,
    memory: EarlierTexts,
    question: str,
) -> Generator[Event, bool | None, None]:
    """settings: of all lanes, the baseline last. question: empty if the prompt is none."""
    # All lanes run the target in one form, or their clocks could not be compared.
    states = any(drafter_kind(own.drafter).reads_states for own in settings.values())
    for lane, own in settings.items():
        _warm_up(pair, prompt_ids, own, lane, states)
    lanes = {
        lane: decode(pair, prompt_ids, own, lane, decider, memory, states=states)
        for lane, own in settings.items()
    }
    try:
        prefilled = {lane: _prefilled(events) for lane, events in lanes.items()}
        header = header_of(pair, prompt_ids, settings, mode, prefilled)
        # A tokenizer may have changed its letters.
        asked = question if question and question in header.prompt else None
        if (yield replace(header, memory=memory_described(memory), question=asked)):
            yield End(dict.fromkeys(lanes, "stopped"))
            return
        emitted: dict[str, list[Round]] = {lane: [] for lane in lanes}
        reasons: Reasons = {}
        in_turn = _interleaved if mode == "interleaved" else _one_by_one
        for result in in_turn(lanes, reasons):
            emitted[result.lane].append(result)
            if (yield result):
                _stop(result.lane, lanes, reasons)
                break
        yield _end(emitted, reasons, settings)
    finally:
        for events in lanes.values():
            events.close()


def _warm_up(
    pair: Pair, prompt_ids: list[int], settings: Settings, lane: Lane, states: bool
) -> None:
    # A short prompt is enough, and leaves room in the context. It repeats itself, so that n-grams
    # are found and passes of several tokens are warmed up too.
    few = replace(settings, max_new_tokens=WARM_ROUNDS * (settings.gamma + 1), stop=())
    short = (2 * prompt_ids[:8])[: context_length(pair.target)]
    events = decode(pair, short, few, lane, states=states)
    for _ in islice(events, 1 + WARM_ROUNDS):
        pass
    events.close()


def _prefilled(events: LaneEvents) -> Prefilled:
    first = next(events)
    assert isinstance(first, Prefilled)
    return first


def _interleaved(lanes: dict[Lane, LaneEvents], reasons: Reasons) -> Generator[Round]:
    """Rounds of all lanes in the order of their clocks.

    A lane's next round is held back until no other lane can finish one before it; the lane whose
    round was yielded last is the one behind, and runs next.
    """
    waiting: dict[Lane, Round | None] = {}
    due = list(lanes)
    try:
        while True:
            for lane in due:
                waiting[lane] = _next_round(lane, lanes[lane], reasons)
            ready = [held for held in waiting.values() if held is not None]
            if not ready:
                return
            first = min(ready, key=lambda held: held.clock)
            waiting[first.lane], due = None, [first.lane]
            yield first
    except Exception:
        # A round that one lane has finished is not lost with another lane.
        yield from (held for held in waiting.values() if held is not None)
        raise


def _one_by_one(lanes: dict[Lane, LaneEvents], reasons: Reasons) -> Generator[Round]:
    for lane, events in lanes.items():
        while (result := _next_round(lane, events, reasons)) is not None:
            yield result


def _next_round(lane: Lane, events: LaneEvents, reasons: Reasons) -> Round | None:
    try:
        result = next(events)
    except StopIteration as stop:
        reasons[lane] = stop.value
        return None
    assert isinstance(result, Round)
    return result


def _stop(last: Lane, lanes: dict[Lane, LaneEvents], reasons: Reasons) -> None:
    """End all lanes after a round of `last`; those that had ended keep their reasons."""
    if last not in reasons:
        try:
            lanes[last].send(True)
        except StopIteration as stop:
            reasons[last] = stop.value
    for lane in lanes:
        # What it may have computed beyond the last round was seen by nobody.
        reasons.setdefault(lane, "stopped")


def _end(emitted: dict[str, list[Round]], reasons: Reasons, settings: dict[Lane, Settings]) -> End:
    if not settings[BASELINE].greedy:
        return End(reasons)
    found = {
        lane: agreement_of(rounds, emitted[BASELINE])
        for lane, rounds in emitted.items()
        if lane != BASELINE
    }
    first = next(iter(found.values()))
    named = found if set(found) != {SPECULATIVE} else None
    return End(reasons, first.identical, first.compared, first.divergence, named)
