"""Race all lanes on one device, each with its own clock."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from ..base.errors import SettingsError
from .drafter_choice import EarlierTexts, Memory, memory_ids
from .events import End, Event, Round
from .header import header_of
from .lanes import BASELINE, Lane, Several
from .loop import LaneOptions, decode
from .messages import Messages
from .pair import Pair, checked_pair, lanes_for
from .registry import drafter_kind
from .settings import Settings
from .shared_prompt import SharedPrompt
from .turns import ORDERS, Reasons, end_of, note_stop, prefilled, warm_up
from .types import Mode, Prompt

if TYPE_CHECKING:
    from .protocols import Racing, Rule


def race(
    pair: Pair | Racing,
    prompt: Prompt,
    settings: Settings | Several | None = None,
    *,
    mode: Mode = "interleaved",
    decide: Rule | None = None,
    memory: Memory = (),
    **changes: Any,
) -> Iterator[Event]:
    """Race the target alone against the same target with drafts on a prompt: a text, ids, or a
    conversation.

    Yields a `Header`, then the `Round`s of all lanes, then an `End`. All lanes are warmed up first;
    prefill is in the header, apart from the clocks. Closing the generator stops all lanes within a
    round; so does sending it True, which yields the `End`. Raises `SpecvizError` subclasses.

    pair: a `Racing` stand-in, such as a watched server, has its own method `race`.
    settings: by default those of `Pair.settings`. One `Settings` gives the lanes "speculative" and
        "baseline". Several, by lane or in a sequence (lanes are then named by what differs), give a
        lane each, next to the baseline; they may differ only in how they draft.
    mode: "interleaved" runs the lane whose clock is behind; "sequential" one lane after the other.
    decide: a rule that judges instead of the settings' rule, for benchmarks of speed.
    memory: earlier texts, as text or ids, that the drafter "suffix" may draft from; they are read
        before the clocks begin.
    changes: fields of `Settings`, such as gamma=5, for two lanes.
    """
    racing = pair if hasattr(pair, "race") else checked_pair(pair)
    lanes = lanes_for(racing, settings, changes)
    if not isinstance(racing, Pair):
        return racing.race(prompt, lanes, memory)
    if mode not in ORDERS:
        raise SettingsError(f"mode is {mode!r}: use 'interleaved' or 'sequential'.")
    first = next(iter(lanes.values()))
    prompt_ids = racing.encode(prompt, chat=first.chat)
    texts = memory_ids(racing, memory, lanes.values())
    messages = racing.messages_of(prompt, first.chat)
    return _race(racing, prompt_ids, {**lanes, BASELINE: first}, mode, decide, texts, messages)


def _race(
    pair: Pair,
    prompt_ids: list[int],
    settings_by_lane: dict[Lane, Settings],
    mode: Mode,
    other_rule: Rule | None,
    memory: EarlierTexts,
    messages: Messages,
) -> Generator[Event, bool | None, None]:
    """Run the race. settings_by_lane: of all lanes, the baseline last. messages: those of
    `Pair.messages_of`."""
    # A drafter of one lane may read hidden states. Then every lane's target runs in the form that
    # has them, or the clocks could not be compared.
    drafters = [drafter_kind(settings.drafter) for settings in settings_by_lane.values()]
    hidden_states = any(drafter.reads_states for drafter in drafters)
    for lane, settings in settings_by_lane.items():
        warm_up(pair, prompt_ids, settings, lane, hidden_states)
    options = LaneOptions(
        other_rule=other_rule, memory=memory, hidden_states=hidden_states, prompt=SharedPrompt()
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
