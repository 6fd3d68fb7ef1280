"""Earlier texts that some drafters draft from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import SettingsError, shown
from ..kinds import drafter_kind
from ..kinds import drafters as every_drafter
from ..settings import Settings
from .drafting import EarlierTexts, Memory

if TYPE_CHECKING:
    from ..pairs.pair import Pair


def checked_memory(pair: Pair, memory: Memory, settings: Iterable[Settings]) -> EarlierTexts:
    """As `drafting.memory_ids`."""
    if isinstance(memory, str):
        raise SettingsError("memory is one text: use a list of texts, each as text or as ids.")
    if not isinstance(memory, (list, tuple)):
        raise SettingsError(f"memory is {shown(memory)}: use a list of texts, each text or ids.")
    if not memory:
        return ()
    drafters = [one.drafter for one in settings]
    if not any(drafter_kind(name).reads_memory for name in drafters):
        readers = " or ".join(repr(kind.name) for kind in every_drafter() if kind.reads_memory)
        raise SettingsError(
            f"memory is given and the drafter is {drafters[0]!r}: only {readers} reads earlier "
            "texts, so choose it or leave memory out."
        )
    return tuple(ids for text in memory if (ids := tuple(pair.text_ids(text))))
