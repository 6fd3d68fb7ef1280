"""One lane without a race."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..lanes import BASELINE, SPECULATIVE, Lane
from ..pairs.pair import Pair, checked_pair, settings_for
from ..settings import Settings
from .drafting import Memory, memory_ids
from .events import Round
from .loop import decode
from .types import Prompt


def speculate(
    pair: Pair,
    prompt: Prompt,
    settings: Settings | None = None,
    *,
    memory: Memory = (),
    **changes: Any,
) -> Iterator[Round]:
    """Decode `prompt` (text or ids) with drafts; yields a `Round` per target pass.

    Without settings they are those of `Pair.settings`, which drafts with what the pair has.
    memory: earlier texts, as text or ids, that the drafter "suffix" may draft from. changes: fields
    of `Settings`, such as gamma=5. Raises `SpecvizError` subclasses. The generator may be abandoned
    at any point.
    """
    pair = checked_pair(pair)
    return _rounds_only(pair, prompt, settings_for(pair, settings, changes), SPECULATIVE, memory)


def baseline(
    pair: Pair, prompt: Prompt, settings: Settings | None = None, **changes: Any
) -> Iterator[Round]:
    """The same loop without drafts; yields a `Round` of one token per target pass."""
    pair = checked_pair(pair)
    own = Settings() if settings is None else settings
    return _rounds_only(pair, prompt, settings_for(pair, own, changes), BASELINE)


def _rounds_only(
    pair: Pair, prompt: Prompt, settings: Settings, lane: Lane, memory: Memory = ()
) -> Iterator[Round]:
    texts = memory_ids(pair, memory, [settings])
    events = decode(pair, pair.encode(prompt, chat=settings.chat), settings, lane, memory=texts)
    return (event for event in events if isinstance(event, Round))
