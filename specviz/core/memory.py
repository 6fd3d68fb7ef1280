"""Earlier texts that the drafter "suffix" may draft from, as a run is given them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ..checks import shown
from ..errors import SettingsError
from ..kinds import drafter_kind
from ..kinds import drafters as every_drafter
from ..pairs.pair import Pair
from ..settings import Settings
from .types import Prompt

Memory: TypeAlias = Sequence[Prompt]
"""EarlierTexts, each as text or as ids of the target's tokenizer."""

EarlierTexts: TypeAlias = tuple[tuple[int, ...], ...]


def memory_ids(pair: Pair, memory: Memory, settings: Iterable[Settings]) -> EarlierTexts:
    """The ids of each text that is not empty.

    settings: of the lanes with drafts. Raises `SettingsError` if none of them reads earlier texts,
    and `PromptError` for a text that is neither text nor known ids.
    """
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


def described(memory: EarlierTexts) -> dict[str, int] | None:
    """What a header says of it: how many texts and tokens, never the texts."""
    return {"texts": len(memory), "tokens": sum(map(len, memory))} if memory else None
