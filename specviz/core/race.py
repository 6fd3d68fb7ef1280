"""Race all lanes on one device, each with its own clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base.errors import SettingsError
from .drafter_choice import EarlierTexts, Memory, memory_ids
from .events import End, RaceEvents, Round
from .header import header_of
from .lanes import BASELINE, SPECULATIVE, Lane, Several
from .loop import LaneOptions, decode
from .messages import Messages
from .pair import Pair, checked_watched, settings_for
from .registry import drafter_kind
from .settings import Settings
from .shared_prompt import SharedPrompt
from .turns import ORDERS, Reasons, end_of, note_stop, prefilled, warm_up
from .types import Mode, Prompt

if TYPE_CHECKING:
    from .protocols import Rule, WatchedPair


def race(
    pair: Pair | WatchedPair,
    prompt: Prompt,
    settings: Settings | Several | None = None,
    *,
    mode: Mode = "interleaved",
    decide: Rule | None = None,
    memory: Memory = (),
    **changes: Any,
) -> RaceEvents:
    """Race the target alone against the same target with drafts on a prompt: a text, ids, or a
    conversation.

    Yields a `Header`, then the `Round`s of all lanes, then an `End`. All lanes are warmed up first;
    prefill is in the header, apart from the clocks. Closing the generator stops all lanes within a
    round; so does sending it True, which yields the `End`. Raises `SpecvizError` subclasses.

    pair: a `WatchedPair`, which stands for a server, has its own method `race`.
    settings: by default those of `Pair.settings`. One `Settings` gives the lanes "speculative" and
        "baseline". Several, by lane or in a sequence (lanes are then named by what differs), give a
        lane each, next to the baseline; they may differ only in how they draft.
    mode: "interleaved" runs the lane whose clock is behind; "sequential" one lane after the other.
    decide: a rule that judges instead of the settings' rule, for benchmarks of speed.
    memory: earlier texts, as text or ids, that the drafter "suffix" may draft from; they are read
        before the clocks begin.
    changes: fields of `Settings`, such as gamma=5, for two lanes.
    """
    if not isinstance(pair, Pair):
        watched = checked_watched(pair)
        return watched.race(prompt, _lanes_for(watched, settings, changes), memory)
    lanes = _lanes_for(pair, settings, changes)
    if mode not in ORDERS:
        raise SettingsError(f"mode is {mode!r}: use 'interleaved' or 'sequential'.")
    first = next(iter(lanes.values()))
    prompt_ids = pair.encode(prompt, chat=first.chat)
    texts = memory_ids(pair, memory, lanes.values())
    messages = pair.messages_of(prompt, first.chat)
    return _race(pair, prompt_ids, {**lanes, BASELINE: first}, mode, decide, texts, messages)


def _lanes_for(
    pair: Pair | WatchedPair, settings: Settings | Several | None, changes: Mapping[str, Any]
) -> dict[Lane, Settings]:
    """The speculative lanes of a race, in order: several, or the one that `settings_for` gives.
    Raises `SettingsError`."""
    if settings is None or isinstance(settings, Settings) or changes:
        return {SPECULATIVE: settings_for(pair, settings, changes)}
    from .several import checked_several  # a race of two needs none of it

    return checked_several(settings)


def _race(
    pair: Pair,
    prompt_ids: list[int],
    settings_by_lane: dict[Lane, Settings],
    mode: Mode,
    scripted_rule: Rule | None,
    memory: EarlierTexts,
    messages: Messages,
) -> RaceEvents:
    """Run the race. settings_by_lane: of all lanes, the baseline last. messages: those of
    `Pair.messages_of`."""
    # A drafter of one lane may read hidden states. Then every lane's target runs in the form that
    # has them, or the clocks could not be compared.
    drafters = [drafter_kind(settings.drafter) for settings in settings_by_lane.values()]
    hidden_states = any(drafter.reads_states for drafter in drafters)
    for lane, settings in settings_by_lane.items():
        warm_up(pair, prompt_ids, settings, lane, hidden_states)
    options = LaneOptions(
        scripted_rule=scripted_rule,
        memory=memory,
        hidden_states=hidden_states,
        prompt=SharedPrompt(),
    )
    events_by_lane = {
        lane: decode(pair, prompt_ids, settings, lane, options)
        for lane, settings in settings_by_lane.items()
    }
    try:
        prefills = {lane: prefilled(events) for lane, events in events_by_lane.items()}
        header = header_of(pair, prompt_ids, settings_by_lane, mode, prefills, memory, messages)
        if (yield header):
            yield End(dict.fromkeys(events_by_lane, "stopped"))
            return
        rounds: dict[str, list[Round]] = {lane: [] for lane in events_by_lane}
        reasons: Reasons = {}
        for round_ in ORDERS[mode](events_by_lane, reasons):
            rounds[round_.lane].append(round_)
            if (yield round_):
                note_stop(round_.lane, events_by_lane, reasons)
                break
        yield end_of(rounds, reasons, settings_by_lane)
    finally:
        for events in events_by_lane.values():
            events.close()
