"""Prompts of a file as ids: some to learn from, some held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import PromptError
from ..pairs.pair import Pair, context_length
from ..prompts import OF_A_TRAINING, prompts_file

HELD_OUT = 10  # one in so many prompts, if no file has others
FEWEST = 2  # prompts of each kind


@dataclass(frozen=True)
class PromptIds:
    """Prompts as ids: those to learn from, and those that alpha is measured on.

    left_out: how many were too long for the models' context, or could not be encoded.
    """

    train: list[list[int]]
    held_out: list[list[int]]
    left_out: int

    def width(self, new_tokens: int) -> int:
        """The most tokens of a prompt and what is written after it."""
        return max(map(len, [*self.train, *self.held_out])) + new_tokens


def read_prompt_ids(
    file: Path, held_out: Path | None, pair: Pair, *, new_tokens: int, seed: int
) -> PromptIds:
    """Read and encode prompts; without a file of held-out ones, one in `HELD_OUT` is held out.

    Prompts that leave less than `new_tokens` tokens of the context are left out, and so is a prompt
    that comes again. Raises `PromptError`.
    """
    limits = [context_length(model) for model in (pair.target, pair.draft)]
    room = min([limit for limit in limits if limit] or [2**31]) - new_tokens
    files = [file, *([held_out] if held_out else [])]
    texts = [list(dict.fromkeys(one.text for one in prompts_file(f, OF_A_TRAINING))) for f in files]
    kept = [_fitting(some, pair, room) for some in texts]
    left_out = sum(map(len, texts)) - sum(map(len, kept))
    learn, held = kept if held_out else _split(kept[0], seed)
    for some, what in ((learn, "to learn from"), (held, "to measure alpha on")):
        if len(some) < FEWEST:
            raise PromptError(
                f"only {len(some)} prompts are left {what}, and {left_out} are too long beside "
                f"{new_tokens} new tokens: add prompts, or lower --max-new-tokens."
            )
    return PromptIds(learn, held, left_out)


def _fitting(texts: Sequence[str], pair: Pair, room: int) -> list[list[int]]:
    found = []
    for text in texts:
        try:
            ids = pair.encode(text)
        except PromptError:
            continue
        if len(ids) <= room:
            found.append(ids)
    return found


def _split(prompts: list[list[int]], seed: int) -> tuple[list[list[int]], list[list[int]]]:
    order = np.random.default_rng(seed).permutation(len(prompts))
    held = max(FEWEST, len(prompts) // HELD_OUT)
    return [prompts[i] for i in order[held:]], [prompts[i] for i in order[:held]]
